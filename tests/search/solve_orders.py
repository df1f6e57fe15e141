#!/usr/bin/env python3
"""Solves random problems of src/search with another solver, CP-SAT of OR-Tools, and prints them as JSON.

tests/fixtures/solved_orders.json is what it printed with ortools 9.15:

    pip install ortools
    tests/search/solve_orders.py > tests/fixtures/solved_orders.json

Times are whole numbers, so that both solvers mean the same. A problem that is not solved in a minute is left out.
"""

import json
import random

from ortools.sat.python import cp_model

FORWARD, INPUT, WEIGHT = range(3)
SHAPES = [
    ("linear", 3, 4), ("linear", 4, 5), ("linear", 4, 8),
    ("wave", 2, 4), ("wave", 3, 3), ("wave", 3, 5),
    ("bidirectional", 2, 4), ("bidirectional", 4, 4), ("bidirectional", 4, 6), ("bidirectional", 6, 6),
]  # placement, D, N


def worker_of(placement, depth):
    """[replica][stage]"""
    down = list(range(depth))
    if placement == "linear":
        return [down]
    if placement == "wave":
        return [down + down[::-1]]
    return [down, down[::-1]]


def solve(problem):
    """The shortest makespan, or None."""
    model = cp_model.CpModel()
    costs, latency = problem["costs"], problem["latency"]
    rows = worker_of(problem["placement"], problem["stages"])
    count = problem["micro_batches"] // len(rows)
    horizon = count * len(rows) * sum(map(sum, costs)) + 4 * latency * len(costs) * count
    busy = [[] for _ in range(problem["stages"])]
    held = [[] for _ in range(problem["stages"])]
    makespan = model.new_int_var(0, horizon, "makespan")
    for row in rows:
        ops = {}
        for stage, worker in enumerate(row):
            for k in range(count):
                for step in (FORWARD, INPUT, WEIGHT):
                    start = model.new_int_var(0, horizon, "")
                    ops[stage, k, step] = start, start + costs[stage][step]
                    busy[worker].append(model.new_fixed_size_interval_var(start, costs[stage][step], ""))
                length = model.new_int_var(0, horizon, "")
                first, last = ops[stage, k, FORWARD][0], ops[stage, k, WEIGHT][1]
                held[worker].append(model.new_interval_var(first, length, last, ""))
                model.add(makespan >= last)
        for (stage, k, step), (start, _) in ops.items():
            if step != FORWARD:
                model.add(start >= ops[stage, k, step - 1][1])
            before = {FORWARD: stage - 1, INPUT: stage + 1, WEIGHT: None}[step]
            if (before, k, step) in ops:
                delay = latency if row[before] != row[stage] else 0
                model.add(start >= ops[before, k, step][1] + delay)
    for intervals in busy:
        model.add_no_overlap(intervals)
    for intervals in held:
        model.add_cumulative(intervals, [1] * len(intervals), problem["room"])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 60
    if solver.solve(model) != cp_model.OPTIMAL:
        return None
    return round(solver.objective_value)


def main():
    chance = random.Random(1)
    problems = []
    for placement, depth, micro_batches in SHAPES:
        for _ in range(3):
            stages = 2 * depth if placement == "wave" else depth
            problem = {
                "placement": placement, "stages": depth, "micro_batches": micro_batches,
                "latency": chance.choice([0, 1, 3]),
                "room": chance.randint(2, micro_batches) * (2 if placement == "wave" else 1),  # stages in flight
                "costs": [[chance.randint(8, 12), chance.randint(8, 14), chance.randint(6, 10)] for _ in range(stages)],
            }
            makespan = solve(problem)
            if makespan is not None:
                problems.append(problem | {"makespan": makespan})
    print("[\n" + ",\n".join(json.dumps(problem) for problem in problems) + "\n]")


main()
