"""NumExpr on all cores: the fast way on the CPU without a compiler."""
import os

from common import CORES, load, main

EXPRESSIONS = {
    "mul": "a * b",
    "add1": "a + 1",
    "middle": "(a * b + 1) / (a + b) - sqrt(a)",
    "heavy": "sin(a) * exp(b) + sqrt(a * b)",
}


def run(bench):
    os.environ["NUMEXPR_MAX_THREADS"] = str(CORES)  # read on import; at most 16 otherwise
    numexpr = load("numexpr")
    numexpr.set_num_threads(CORES)
    a, b, c = map(bench.column, "abc")
    for job, expression in EXPRESSIONS.items():
        def evaluate(x, y, out):
            return numexpr.evaluate(expression, {"a": x, "b": y}, out=out)

        evaluate(a[:1000], b[:1000], c[:1000])  # compiles it
        bench.line(f"{job} ordinary", lambda: evaluate(a, b, c), c, f"NumExpr ({CORES} threads)")


main("NumExpr", run)
