#!/usr/bin/env python3
"""Checks the pages of `--html` in a browser: pages are well-formed and need nothing from outside, and in windows of
several widths no text is cut off, covered by another, or too wide.

    tests/html/check.py [--overshot PATH] [--chromium PATH] [--screenshots FOLDER]

Needs Chromium, and of Python the standard library alone.
"""

import argparse
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A desktop, an output cell of a notebook, and a telephone.
WIDTHS = (1200, 700, 400)
LARGEST = 300_000
ODD_NAME = "a<b>&\"quoted\"'s " + "long_" * 20 + ".npy"

# Runs in the frame's parent: a frame may be narrower than Chromium's smallest window.
PROBE = """
function probe(frame) {
    const page = frame.contentDocument, width = frame.clientWidth, wrong = [];
    frame.style.height = page.documentElement.scrollHeight + 'px';
    if (page.documentElement.scrollWidth > width)
        wrong.push('the page is ' + page.documentElement.scrollWidth + ' px wide');
    const texts = [];
    const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const parent = node.parentElement;
        if (!node.data.trim() || parent.closest('style')) continue;
        const range = page.createRange();
        range.selectNodeContents(node);
        const svg = parent.closest('svg');
        const style = frame.contentWindow.getComputedStyle(parent);
        const outer = svg ? svg.getBoundingClientRect() : null;
        const name = JSON.stringify(node.data.trim().slice(0, 40));
        if (parseFloat(style.fontSize) < 11) wrong.push(name + ' is smaller than 11 px');
        for (const box of range.getClientRects()) {
            if (box.width < 1 || box.height < 1) continue;
            if (box.left < -0.5 || box.right > width + 0.5) wrong.push(name + ' leaves the window');
            if (outer && (box.left < outer.left - 0.5 || box.right > outer.right + 0.5 ||
                box.top < outer.top - 2 || box.bottom > outer.bottom + 2)) wrong.push(name + ' leaves its drawing');
            texts.push({ name, node, box });
        }
    }
    for (let i = 0; i < texts.length; i++) {
        for (let k = i + 1; k < texts.length; k++) {
            const a = texts[i], b = texts[k];
            const over = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
            const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
            if (a.node !== b.node && over > 1 && down > 4) wrong.push(a.name + ' and ' + b.name + ' overlap');
        }
    }
    for (const svg of page.querySelectorAll('svg[role=img]')) {
        if (svg.getBoundingClientRect().width < 60) wrong.push(svg.getAttribute('aria-label') + ': is too narrow');
        if (!svg.getAttribute('aria-label')) wrong.push('a drawing has no label');
    }
    const body = frame.contentWindow.getComputedStyle(page.body);
    const found = { wrong, texts: texts.length, drawings: page.querySelectorAll('svg[role=img]').length,
        dark: frame.contentWindow.matchMedia('(prefers-color-scheme: dark)').matches,
        colours: [body.color, body.backgroundColor] };
    document.getElementById('found').textContent = JSON.stringify(found);
}
"""


class Browser:
    """Chromium without a window."""

    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        self.started = 0

    def run(self, options, address):
        # The browser itself crashes or hangs now and then. What it finds on a page never depends on that.
        for _ in range(3):
            try:
                done = self.start(options, address)
            except subprocess.TimeoutExpired as expired:
                problem = str(expired)
                continue
            if done.returncode == 0:
                return done.stdout
            problem = f"{' '.join(done.args)}: {done.returncode}\n{done.stderr}"
            if done.returncode > 0:
                break
        sys.exit(problem)

    def start(self, options, address):
        self.started += 1
        profile = os.path.join(self.folder, f"profile{self.started}")
        command = [
            self.path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--virtual-time-budget=3000", f"--user-data-dir={profile}", *options,
            "file://" + address,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def framed(self, page, width):
        """Writes a page with a frame of this width that shows the page and examines it."""
        path = os.path.join(self.folder, f"frame{width}.html")
        text = (
            f"<!DOCTYPE html><meta charset='utf-8'><style>body{{margin:0;background:#888}}iframe{{border:0;"
            f"display:block}}#found{{display:none}}</style><script>{PROBE}</script>"
            f"<iframe width='{width}' height='800' onload='probe(this)' srcdoc='{html.escape(page)}'></iframe>"
            "<pre id='found'></pre>"
        )
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def examine(self, page, width, dark=False):
        options = ["--force-dark-mode"] if dark else []
        # A frame may not be loaded when the browser prints the page: its process crashed, or was late.
        for _ in range(3):
            dom = self.run([*options, "--dump-dom", "--window-size=1400,1000"], self.framed(page, width))
            found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
            if found and found[1]:
                return json.loads(html.unescape(found[1]))
        sys.exit("the page was not examined: its frame did not load")

    def screenshot(self, page, width, to, height, dark=False):
        options = ["--force-dark-mode"] if dark else []
        size = f"--window-size={max(width, 500)},{height}"
        self.run([*options, size, f"--screenshot={to}"], self.framed(page, width))


def overshot(path, folder, *args):
    environment = dict(os.environ, OVERSHOT_CACHE="")
    done = subprocess.run([path, *args], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"overshot {' '.join(args)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def make_pages(path, folder):
    """Returns the pages by name, each with the JSON of its report or plan."""
    run = ["run", "--json", "--force"]
    for name in "a", "b", ODD_NAME:
        overshot(path, folder, "run", "--quiet", "x = (i * 7919 % 10007) / 10007", f"x={name}", "--rows", "1e6")
    text = "c = a * b; m = mean(c), max(c)"
    files = ["a=a", "b=b", "c=c"]
    files = [f"{name}:f64" if name != "c=c" else name for name in files]
    jobs = {
        "two-devices": [*run, text, *files, "--device", "emulated:7*2", "--chunk", "512KiB"],
        "cpu-and-device": [*run, text, *files, "--device", "cpu+emulated:7"],
        "cpu": [*run, text, *files, "--device", "cpu"],
        "long": [*run, "c = sqrt(f64(i)); sum(c)", "c=c", "--rows", "4e6", "--device", "emulated:7*2",
                 "--chunk", "32KiB"],
        "odd": [*run, "c = (a <\n 0.5); count(c & (a > 1e-3)), min(a)", f"a={ODD_NAME}", "c=c<i>&.bool",
                "--device", "emulated"],
        "empty": [*run, "sum(i), min(i)", "--rows", "0", "--device", "emulated"],
        "plan": ["plan", "--json", text, *files, "--force", "--device", "cpu+emulated:7"],
        "plan-two": ["plan", "--json", text, *files, "--force", "--device", "emulated:7*2", "--device-memory", "4MiB"],
    }
    pages = {}
    for name, args in jobs.items():
        found = json.loads(overshot(path, folder, *args, "--html", f"{name}.html"))
        with open(os.path.join(folder, f"{name}.html"), encoding="utf-8") as file:
            pages[name] = file.read(), found
    return pages


def text_of(page):
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    for style in list(root.iter("style")):
        style.text = ""
    return " ".join(" ".join(root.itertext()).split())


def check_text(name, page, found):
    """Returns what is wrong with the text of a page: its form, and its numbers."""
    wrong = []
    if len(page.encode()) > LARGEST:
        wrong.append(f"has {len(page.encode())} bytes")
    for word in ("<script", "http:", "https:", "url(", "@import", " src=", " href=", " id=", " on"):
        if re.search(re.escape(word) + (r"\w+=" if word == " on" else ""), page):
            wrong.append(f"has '{word}'")
    try:
        text = text_of(page)
    except ElementTree.ParseError as error:
        return [*wrong, f"is not well-formed: {error}"]
    expected = [f"{found['rows']:,}"]
    for device in found["devices"]:
        expected += [device["id"], device["name"]]
        if not name.startswith("plan"):
            expected += [f"{device['rows']:,} row", f"{device['chunks']:,} chunk"]
    for result in found.get("results", []):
        expected += [result["name"], "no value" if result["value"] is None else str(result["value"])]
    for column in [*found.get("inputs", []), *found.get("outputs", [])]:
        expected += [column["name"], column["path"]]
    expected += [column["name"] for column in found.get("columns", [])] + found["notes"]
    expected += [found["expression"]] if "expression" in found else []
    wrong += [f"does not have '{part}'" for part in expected if " ".join(part.split()) not in text]
    return wrong


def contrast(colours):
    """Returns the contrast of two colours `rgb(r, g, b)`, as in WCAG 2."""
    light = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        light.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def check_mistakes(browser, page):
    """Returns the mistakes that the check does not find."""
    mistakes = {
        "px wide": page.replace("</h3>", "</h3><div style='width:2000px'>wide</div>", 1),
        "overlap": page.replace("</h3>", "</h3><p>under</p><p style='margin-top:-20px'>over</p>", 1),
        "leaves its drawing": page.replace(
            "</h3>", "</h3><svg width='90' height='20'><text x='50' y='12'>cut off at its end</text></svg>", 1),
        "smaller than": page.replace("</h3>", "</h3><p style='font-size:8px'>small</p>", 1),
    }
    missed = []
    for word, broken in mistakes.items():
        if not any(word in text for text in browser.examine(broken, 700)["wrong"]):
            missed.append(f"the check does not find '{word}'")
    if not check_text("", page.replace("</table>", "", 1), {"rows": 0, "devices": [], "notes": []}):
        missed.append("the check does not find a tag that is not closed")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    parser.add_argument("--overshot", default=os.path.join(target, "debug/overshot"))
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--screenshots", metavar="FOLDER", help="takes screenshots, too")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(args.chromium, folder)
        pages = make_pages(os.path.abspath(args.overshot), folder)
        wrong += check_mistakes(browser, pages["cpu"][0])
        for name, (page, found) in pages.items():
            wrong += [f"{name}: {problem}" for problem in check_text(name, page, found)]
            for width in WIDTHS:
                seen = browser.examine(page, width)
                wrong += [f"{name}, {width} px: {problem}" for problem in seen["wrong"]]
                if seen["texts"] < 10 or contrast(seen["colours"]) < 7 or seen["dark"]:
                    wrong.append(f"{name}, {width} px: {seen}")
            print(f"{name}: {len(page.encode())} bytes, {seen['texts']} texts, {seen['drawings']} drawings")
        dark = browser.examine(pages["cpu"][0], 700, dark=True)
        if not dark["dark"] or contrast(dark["colours"]) < 7:
            wrong.append(f"cpu, dark: {dark}")
        if args.screenshots:
            os.makedirs(args.screenshots, exist_ok=True)
            for name, (page, _) in pages.items():
                for width, is_dark in [(1200, False), (400, False), (700, True)]:
                    file = f"{name}-{width}{'-dark' if is_dark else ''}.png"
                    to = os.path.join(os.path.abspath(args.screenshots), file)
                    browser.screenshot(page, width, to, 1900 if width == 400 else 1500, is_dark)
    print(*wrong, sep="\n")
    sys.exit(f"{len(wrong)} problems" if wrong else 0)


if __name__ == "__main__":
    main()
