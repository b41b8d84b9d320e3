#!/usr/bin/env python3
"""Runs the tests against mutants: small faults that are put into the library on purpose. A mutant that no test notices
shows a gap in the tests.

    run.py --check                    checks that every entry of the lists fits its source; takes no build
    run.py [NAME …] [--jobs N]        builds, and runs all mutants, or those whose names match (`pipeline/slot*`)
    run.py --build FOLDER             builds only: the folder has all that another machine needs, which needs no Rust
    run.py --run FOLDER [NAME …]      runs what --build built

All mutants are in one build; a variable switches one of them on. Each suite runs once without mutants. That run also
tells which mutants the suite reaches, so that each mutant runs only in suites that reach it. A mutant is killed by
the first failure, by the end of the process, or by a time limit, because many mutants deadlock.

The script fails if a mutant survives, or is not reached, that has no entry `survives`; and if one that has is killed.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock

import suites

ROOT = Path(__file__).resolve().parents[2]
STANDINS = ["cuda", "nvrtc", "cublas"]
# Where tests look for files of the repository. `env!` would be the folder of the build, on another machine.
MANIFEST = 'env!("CARGO_MANIFEST_DIR")'
FOLDER_OF_FILES = '&*Box::leak(std::env::var("MUTANTS_ROOT").unwrap().into_boxed_str())'


def check():
    import patches

    mutants = patches.load()
    patches.mutate(ROOT, mutants)
    return mutants


# ---- Building.


def copy_tree(tree, mutated):
    """Makes `tree` the mutated copy of the repository. Files that are right stay, so that cargo builds little."""
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(list_files, cwd=ROOT, check=True, capture_output=True)
    files = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    texts = {name: (ROOT / name).read_bytes() for name in files}
    texts.update({name: text.encode() for name, text in mutated.items()})
    texts["src/mutant.rs"] = (ROOT / "tests/mutants/mutant.rs").read_bytes()
    texts["src/lib.rs"] += b"\nmod mutant;\n"
    # This test compiles some files of the library a second time.
    texts["tests/schedules/main.rs"] += b'\n#[path = "../../src/mutant.rs"]\nmod mutant;\n'
    for name in texts:
        if name.endswith(".rs"):
            texts[name] = texts[name].replace(MANIFEST.encode(), FOLDER_OF_FILES.encode())
    for path in tree.rglob("*"):
        if path.is_file() and str(path.relative_to(tree)) not in texts:
            path.unlink()
    for name, text in texts.items():
        path = tree / name
        if not path.is_file() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)


def cargo(tree, *arguments):
    """Runs cargo, and returns the executables and libraries that it made: (name, path)."""
    target = ROOT / "target/mutants/build"
    environment = os.environ | {"CARGO_TARGET_DIR": str(target), "CARGO_PROFILE_DEV_DEBUG": "0"}
    command = ["cargo", *arguments, "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit("the mutants do not compile; see which above")
    for message in map(json.loads, done.stdout.splitlines()):
        target = message.get("target", {})
        if message.get("executable"):
            name = "lib" if "lib" in target["kind"] else target["name"]
            yield name, Path(message["executable"])
        elif "cdylib" in target.get("crate_types", []) and message.get("filenames"):
            yield target["name"], Path(message["filenames"][0])


def build(folder):
    """Builds all mutants, and puts what a run needs into the folder."""
    import patches

    mutants = patches.load()
    tree = ROOT / "target/mutants/tree"
    copy_tree(tree, patches.mutate(ROOT, mutants))
    tests = [part for name in suites.BINARIES for part in (["--lib"] if name == "lib" else ["--test", name])]
    made = dict(cargo(tree, "test", "--no-run", *tests))
    made.update(cargo(tree, "build", "--bin", "overshot", *(f"--example={name}" for name in STANDINS)))
    shutil.rmtree(folder, ignore_errors=True)
    places = {name: f"deps/{name}" for name in suites.BINARIES}
    places |= {"overshot": "overshot"} | {name: f"examples/lib{name}.so" for name in STANDINS}
    for name, place in places.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-o", folder / place, made[name]], check=True)
    for name in ["tests/data", "examples/batch.sh", "tests/mutants/run.py", "tests/mutants/suites.py"]:
        at = folder / (name if "mutants" not in name else Path(name).name)
        at.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, at)
    (folder / "mutants.json").write_text(json.dumps([asdict(mutant) for mutant in mutants], indent=1))


# ---- Running.


def baseline(folder, results, number, jobs, threads):
    """Runs every suite without mutants. Returns the seconds of each, and the mutants that it reaches."""
    path = results / "baseline.json"
    if path.exists():
        return json.loads(path.read_text())

    def run(suite):
        reached = results / f"reached-{suites.SUITES.index(suite)}"
        reached.write_bytes(bytes(number))
        failure, seconds = suites.run(suite, folder, 1200, threads, reached=reached)
        if failure:
            sys.exit(f"the suite '{suite.name}' fails without mutants: {failure}")
        found = [number for number, byte in enumerate(reached.read_bytes()) if byte]
        reached.unlink()
        print(f"{suite.name}: {seconds:.1f} s, reaches {len(found)} mutants", flush=True)
        return suite.name, {"seconds": seconds, "reaches": found}

    with ThreadPoolExecutor(jobs) as pool:
        measured = dict(pool.map(run, suites.SUITES))
    path.write_text(json.dumps(measured))
    return measured


def judge(mutant, folder, measured, last_killer, threads):
    """Runs a mutant in all suites that were measured and reach it, until one kills it."""
    reaching = [each for each in suites.SUITES if mutant["number"] in measured.get(each.name, {}).get("reaches", [])]
    reaching.sort(key=lambda suite: suite.name != last_killer)
    total = 0
    for suite in reaching:
        limit = 30 + 5 * measured[suite.name]["seconds"]
        failure, seconds = suites.run(suite, folder, limit, threads, mutant=mutant["number"])
        total += seconds
        if failure:
            return {"verdict": "killed", "suite": suite.name, "test": failure, "seconds": round(total, 1)}
    return {"verdict": "survived" if reaching else "not reached", "seconds": round(total, 1)}


def run(folder, results, patterns, chosen_suites, jobs, threads):
    """Runs the chosen mutants. Returns whether all verdicts are the expected ones."""
    mutants = json.loads((folder / "mutants.json").read_text())
    chosen = [each for each in mutants if not patterns or any(fnmatch.fnmatch(each["name"], p) for p in patterns)]
    if not chosen:
        sys.exit("no mutant has such a name")
    management = folder / "examples/libnvidia-ml.so.1"
    if not management.exists():
        management.symlink_to("libcuda.so")
    results.mkdir(parents=True, exist_ok=True)
    measured = baseline(folder, results, len(mutants), jobs, threads)
    if chosen_suites:
        measured = {name: known for name, known in measured.items() if name in chosen_suites.split(",")}
    path = results / "results.json"
    known, lock = json.loads(path.read_text()) if path.exists() else {}, Lock()

    def one(mutant):
        last_killer = known.get(mutant["name"], {}).get("suite")
        verdict = judge(mutant, folder, measured, last_killer, threads)
        by = f" by {verdict['suite']}: {verdict['test']}" if "suite" in verdict else ""
        print(f"{verdict['seconds']:6.1f} s  {verdict['verdict']:11}  {mutant['name']}{by}", flush=True)
        with lock:
            known[mutant["name"]] = verdict | {"breaks": mutant["breaks"]}
            path.write_text(json.dumps(known, indent=1))
        return mutant, verdict

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(one, chosen))
    return report(verdicts)


def report(verdicts):
    """Prints what the verdicts add up to. Returns whether they are the expected ones."""
    by_suite, wrong, survivors = {}, [], []
    for mutant, verdict in verdicts:
        if verdict["verdict"] == "killed":
            by_suite[verdict["suite"]] = by_suite.get(verdict["suite"], 0) + 1
            if mutant["survives"]:
                wrong.append(f"{mutant['name']}: killed by {verdict['suite']}, but its entry says that it survives")
        elif mutant["survives"]:
            survivors.append(f"{mutant['name']}: {mutant['survives']}")
        else:
            wrong.append(f"{mutant['name']}: {verdict['verdict']}: {mutant['breaks']}")
    killed = sum(by_suite.values())
    print(f"\n{len(verdicts)} mutants: {killed} killed, {len(survivors)} survive as expected, {len(wrong)} are wrong")
    for name, number in by_suite.items():
        print(f"  killed by {name}: {number}")
    for title, lines in [("Survive as expected", survivors), ("Wrong", wrong)]:
        if lines:
            print(f"\n{title}:", *lines, sep="\n  ")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="patterns of names of mutants")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="check that every entry fits its source")
    what.add_argument("--build", type=Path, metavar="FOLDER", help="build into a folder")
    what.add_argument("--run", type=Path, metavar="FOLDER", help="run what was built into a folder")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help="mutants at once; default: the number of cores")
    parser.add_argument("--suites", help="run only these suites, for example 'library,jobs'")
    parser.add_argument("--threads", type=int, help="tests at once in each suite; default: cores / jobs, at least 2")
    parser.add_argument("--results", type=Path, help="the folder for results; default: the folder of the build")
    given = parser.parse_args()
    if given.check:
        print(f"{len(check())} mutants fit their sources")
        return
    folder = (given.build or given.run or ROOT / "target/mutants/folder").resolve()
    if not given.run:
        build(folder)
    if not given.build:
        threads = given.threads or max(2, cores // given.jobs)
        results = (given.results or folder).resolve()
        sys.exit(0 if run(folder, results, given.names, given.suites, given.jobs, threads) else 1)


if __name__ == "__main__":
    try:
        main()
    except Exception as problem:
        # Only `patches` defines this error, which a run on another machine does not have.
        if type(problem).__name__ != "Stale":
            raise
        sys.exit(str(problem))
