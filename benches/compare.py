"""Compares Overshot's throughput, the limits of the machine and hand-written peers: a table and a plot.

python3 benches/compare.py cuda.json cpu.json --peers peers.json [--svg compare.svg] > compare.md

The first files are those of benches/throughput.rs, one per device; peers.json is that of benches/peers. All should be
of one machine and one size; if not, the table says so. GB/s = 1e9 bytes in + out per second. Needs only Python.
"""
import argparse
import json
import sys
import tempfile
import xml.etree.ElementTree
from xml.sax.saxutils import escape

DEVICES = ("cpu", "cuda", "auto")
TITLES = {
    "mul ordinary": "c = a * b",
    "add1 ordinary": "c = a + 1",
    "sum ordinary": "sum(a)",
    "middle ordinary": "c = (a * b + 1) / (a + b) - sqrt(a)",
    "heavy ordinary": "c = sin(a) * exp(b) + sqrt(a * b)",
    "mul pinned": "c = a * b, pinned",
    "add1 pinned": "c = a + 1, pinned",
    "sum pinned": "sum(a), pinned",
    "heavy pinned": "c = sin(a) * exp(b) + sqrt(a * b), pinned",
    "sum file": "sum(file)",
    "file to file": "file = file + 1",
}
COLOURS = {"cpu": "#3b6fb6", "cuda": "#12805c", "auto": "#8a5cc2", "peer": "#9b9b94"}
INK, PAPER, MARK = "#22221f", "#fafaf7", "#c0392b"


class Job:
    """One job: Overshot's rows by device, each with its limit and ratio, and the peers, the best first."""

    def __init__(self, name, ours, peers):
        self.name, self.title = name, TITLES.get(name, name)
        self.ours, self.peers = {}, sorted(peers, key=lambda line: -line["gb_per_s"])
        for file in ours:
            for row in file["rows"]:
                if row["job"] == name:
                    limit = file.get("limits", {}).get(row.get("limit"))
                    ratio = row.get("ratio")
                    if ratio is None and limit:
                        ratio = row["gb_per_s"] / limit
                    self.ours[row["device"].split(":")[0]] = {**row, "gb_per_s_limit": limit, "ratio": ratio}


def jobs(ours, peers):
    known = dict.fromkeys(TITLES)
    known.update(dict.fromkeys(row["job"] for file in ours for row in file["rows"]))
    known.update(dict.fromkeys(line["job"] for line in peers["lines"]))
    every = [Job(name, ours, [line for line in peers["lines"] if line["job"] == name]) for name in known]
    return [job for job in every if job.ours or job.peers]


def limit(row):
    return row["gb_per_s_limit"] and f"{row['gb_per_s_limit']:.1f} ({row['limit'].replace('_', ' ')})"


def ratio(row):
    return None if row["ratio"] is None else f"{row['ratio']:.2f}"


def target(row):
    return None if row.get("target") is None else f"{row['target']:.2f}"


def met(row):
    return None if target(row) is None or row["ratio"] is None else "yes" if row["ratio"] >= row["target"] else "**no**"


def cell(job, text):
    """Returns one text if the devices agree or only one has a text, otherwise each with its device."""
    texts = {device: text(job.ours[device]) for device in DEVICES if device in job.ours and text(job.ours[device])}
    if len(set(texts.values())) <= 1:
        return next(iter(texts.values()), "–")
    return ", ".join(f"{device} {text}" for device, text in texts.items())


def machine(file):
    found = file.get("machine") or {}
    return found if isinstance(found, dict) else {"machine": str(found)}


def table(ours, peers):
    ours_heads = [f"overshot {device}" for device in DEVICES]
    heads = ["job", "limit", *ours_heads, "ratio to limit", "target", "met?", "best peer", "others"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for job in jobs(ours, peers):
        # All texts are cells of a table: a bar would end a cell.
        others = [f"{peer['peer']} {peer['gb_per_s']:.1f}" for peer in job.peers]
        rates = [f"{job.ours[device]['gb_per_s']:.1f}" if device in job.ours else "–" for device in DEVICES]
        cells = [f"`{job.title}`", cell(job, limit), *rates, cell(job, ratio), cell(job, target), cell(job, met)]
        cells += [others[0] if others else "–", ", ".join(others[1:]) or "–"]
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |")
    lines += ["", "GB/s, bytes in + out; median of several runs."]
    files = [*ours, peers]
    for name in ("gpu", "cpu", "cores"):
        seen = {str(machine(file)[name]) for file in files if name in machine(file)}
        if len(seen) > 1:
            lines.append(f"**Not of one machine** ({name}: {', '.join(sorted(seen))}): these figures do not compare.")
    sizes = {file["size"] for file in files if "size" in file}
    if len(sizes) > 1:
        lines.append(f"**Not of one size** ({', '.join(map(str, sorted(sizes)))} bytes a column).")
    about = {name: value for file in reversed(files) for name, value in machine(file).items()}  # ours count most
    if about and not any("one machine" in line for line in lines):
        lines.append("Machine: " + ", ".join(f"{name} {value}" for name, value in about.items()) + ".")
    notes = {}
    for line in peers["lines"]:
        if line.get("note"):
            notes.setdefault(line["peer"], {})[line["note"]] = None
    if notes:
        peers_notes = ". ".join(f"{peer}: {'; '.join(each)}" for peer, each in notes.items())
        lines += ["", "How the peers did it: " + peers_notes + "."]
    if peers.get("not_run"):
        lines += ["", "Not run: " + "; ".join(f"{peer} ({why})" for peer, why in peers["not_run"].items()) + "."]
    return "\n".join(lines) + "\n"


def svg(ours, peers):
    every = jobs(ours, peers)
    left, wide, right, bar, step, top = 160, 430, 150, 11, 16, 32
    rates = [row[key] or 0 for job in every for row in job.ours.values() for key in ("gb_per_s", "gb_per_s_limit")]
    scale = wide / max([*rates, *(line["gb_per_s"] for job in every for line in job.peers), 1e-9])
    out, y = [], top

    def text(x, y, content, more=""):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(content)}</text>')

    def rect(x, y, width, height, colour):
        out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>')

    x = 12
    for name, colour in COLOURS.items():
        rect(x, 13, 10, 10, colour)
        text(x + 15, 22, "by hand" if name == "peer" else f"overshot {name}")
        x += 105
    rect(x, 10, 2, 16, MARK)
    text(x + 8, 22, "limit of the machine; GB/s in + out")
    for job in every:
        y += 20
        text(12, y, job.title, ' font-weight="bold"')
        y += 8
        ordered = [(f"overshot {device}", device, job.ours[device]) for device in DEVICES if device in job.ours]
        ordered += [(line["peer"], "peer", line) for line in job.peers]
        for label, colour, row in ordered:
            width, most = row["gb_per_s"] * scale, row.get("gb_per_s_limit")
            text(left - 8, y + 9.5, label, ' text-anchor="end"')
            rect(left, y, width, bar, COLOURS[colour])
            if most:
                rect(left + most * scale - 1, y - 2, 2, bar + 4, MARK)
            # Beside the mark, not under it.
            label = f"{row['gb_per_s']:.1f}" + (f" of {most:.1f}" if most else "")
            text(left + max(width, (most or 0) * scale) + 6, y + 9.5, label)
            y += step
    size = f'width="{left + wide + right}" height="{y + 14}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {left + wide + right} {y + 14}" '
    head += f'font-family="system-ui, sans-serif" font-size="11" fill="{INK}">\n'
    # A background, so that it looks the same on a light and on a dark page.
    return head + f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>\n' + "\n".join(out) + "\n</svg>\n"


def load(path, key, fields):
    try:
        with open(path) as file:
            content = json.load(file)
    except OSError as error:
        sys.exit(f"compare: {error}")
    except ValueError as error:
        sys.exit(f"compare: {path} is no JSON: {error}")
    rows = content.get(key) if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and fields <= row.keys() for row in rows):
        sys.exit(f"compare: {path}: expected a list {key!r} of objects with {', '.join(sorted(fields))}")
    return content


def self_check():
    """Checks the table with invented figures for which each cell has one right content."""
    limits = {"two_in_one_out": 80.0, "h2d": 50.0}
    mul = {"job": "mul ordinary", "device": "cuda:0", "gb_per_s": 66.6, "limit": "two_in_one_out"}
    mul |= {"ratio": 0.8325, "target": 0.92}
    total = {"job": "sum ordinary", "device": "cuda:0", "gb_per_s": 48.0, "limit": "h2d", "target": 0.92}
    cuda = {"machine": {"gpu": "G", "cores": 16}, "limits": limits, "rows": [mul, total]}
    cpu = {"rows": [{"job": "mul ordinary", "device": "cpu", "gb_per_s": 89.5},
                    {"job": "a|b", "device": "cpu", "gb_per_s": 1.0}]}  # fmt: skip
    auto = {"limits": limits, "rows": [{**mul, "device": "auto", "gb_per_s": 88.0, "ratio": 1.1, "target": 1.0}]}
    lines = [("NumPy (1 thread)", "mul ordinary", 8.8), ("NumExpr", "mul ordinary", 95.53),
             ("CuPy", "sum pinned", 54.0)]  # fmt: skip
    peers = {"machine": {"gpu": "G", "cores": 16}, "not_run": {"kvikio": "no module named kvikio"},
             "lines": [{"peer": peer, "job": job, "gb_per_s": rate, "note": "by map"}
                       for peer, job, rate in lines]}  # fmt: skip

    full = table([cuda, cpu, auto], peers)
    rows = full.splitlines()
    assert rows[0].count("|") == rows[1].count("|") == 11, rows[:2]
    assert rows[2] == (
        "| `c = a * b` | 80.0 (two in one out) | 89.5 | 66.6 | 88.0 | cuda 0.83, auto 1.10 | cuda 0.92, auto 1.00 "
        "| cuda **no**, auto yes | NumExpr 95.5 | NumPy (1 thread) 8.8 |"
    ), rows[2]
    assert rows[3] == "| `sum(a)` | 50.0 (h2d) | – | 48.0 | – | 0.96 | 0.92 | yes | – | – |", rows[3]
    assert rows[4] == "| `sum(a), pinned` | – | – | – | – | – | – | – | CuPy 54.0 | – |", rows[4]
    assert rows[5].startswith("| `a\\|b` | – | 1.0 |") and rows[6] == "", rows[5:7]
    assert "Not run: kvikio (no module named kvikio)." in rows and "Machine: gpu G, cores 16." in rows
    assert "How the peers did it: NumPy (1 thread): by map. NumExpr: by map. CuPy: by map." in rows
    assert "Not of one" not in full
    assert "**Not of one machine** (gpu: G, H)" in table([{**cuda, "machine": {"gpu": "H"}}], peers)
    assert "Machine: " not in table([{**cuda, "machine": {"gpu": "H"}}], peers)
    assert "**Not of one size**" in table([{**cuda, "size": 1}], {**peers, "size": 2})

    plot = svg([cuda, cpu, auto], peers)
    shapes = list(xml.etree.ElementTree.fromstring(plot))
    widths = [float(shape.get("width")) for shape in shapes if shape.get("height") == "11"]
    assert len(widths) == 8 and max(widths) == 430.0, widths  # a bar a figure, the greatest as wide as there is room
    assert abs(widths[0] / widths[3] - 89.5 / 95.53) < 1e-3, widths
    marks = [shape for shape in shapes if shape.get("fill") == MARK and shape.get("height") == "15"]
    assert len(marks) == 3 and "66.6 of 80.0" in plot and "<b" not in svg([cpu], {"lines": []}), len(marks)
    assert svg([], {"lines": []}) and table([], {"lines": []})

    for content, reason in [("[", "no JSON"), ("{}", "'rows'"), ('{"rows": [{"job": 1}]}', "device")]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(content)
            file.flush()
            try:
                load(file.name, "rows", {"job", "device", "gb_per_s"})
                raise AssertionError(f"{content} was taken")
            except SystemExit as exit:
                assert file.name in exit.code and reason in exit.code, exit.code
    print("compare.py: self-check passed")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="compare", description=__doc__, formatter_class=raw)
    parser.add_argument("ours", nargs="*", metavar="OURS.json")
    parser.add_argument("--peers", metavar="PEERS.json")
    parser.add_argument("--svg", metavar="FILE")
    parser.add_argument("--self-check", action="store_true")
    options = parser.parse_args()
    if options.self_check:
        return self_check()
    if not options.ours and not options.peers:
        parser.error("give the JSON of benches/throughput.rs, of benches/peers, or both")
    ours = [load(path, "rows", {"job", "device", "gb_per_s"}) for path in options.ours]
    peers = load(options.peers, "lines", {"job", "peer", "gb_per_s"}) if options.peers else {"lines": []}
    print(table(ours, peers), end="")
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(svg(ours, peers))


if __name__ == "__main__":
    main()
