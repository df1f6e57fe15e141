"use strict";
// node ask.js engine.js: answers requests, one a line of standard input, by the compiled engine beside the script.

const fs = require("fs");
const makeEngine = require(fs.realpathSync(process.argv[2]));

makeEngine({wasmBinary: fs.readFileSync(process.argv[2].replace(/\.js$/, ".wasm"))}).then((module) => {
  for (const request of fs.readFileSync(0, "utf8").split("\n")) {
    if (request === "") continue;
    const size = module.lengthBytesUTF8(request) + 1;
    const place = module._malloc(size);
    module.stringToUTF8(request, place, size);
    const answer = module.UTF8ToString(module._chimera_answer(place));
    module._free(place);
    fs.writeSync(1, `${answer}\n`);
  }
});
