"""Every test of a build has a time limit, so that none can hang the suite. Usage: time_limit_test.py CTEST BUILD."""

import json
import subprocess
import sys

CTEST, BUILD = sys.argv[1:]

listed = subprocess.run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, check=True)
tests = [test for test in json.loads(listed.stdout)["tests"] if not test["name"].endswith("_NOT_BUILT")]
unlimited = [test["name"] for test in tests if not any(each["name"] == "TIMEOUT" for each in test["properties"])]
print(f"{len(tests)} tests, {len(unlimited)} without a time limit", *unlimited, sep="\n  ")
sys.exit(1 if unlimited or not tests else 0)
