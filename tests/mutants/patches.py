"""The list of mutants, and how they are put into a copy of the tree.

A mutant is an entry of a `.toml` file in this folder, under the name of the source file that it changes:

    [["src/pipeline/slot.rs"]]
    name = "no-wait-for-copies-in"
    at = '«compute.wait(&self.events.copied_in)?;»'
    to = ''
    breaks = "the kernel reads rows that are not copied yet"

`at` is a text that occurs exactly once in the source; white space in it stands for any white space. The part in «»
becomes `to`: a statement, if it ends with `;` or `}` or is empty, or else an expression. A missing `to` deletes a
statement. If `to` contains the word MUTANT, it is the whole new text, and MUTANT is the condition that switches the
mutant on. A mutant in several places has lists in `at` and `to`.

`survives` says why no test can tell the mutant from the original. Such a mutant must survive.
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SWITCH = "crate::mutant::on({})"


class Stale(Exception):
    """An entry that does not fit the source."""


@dataclass
class Mutant:
    name: str
    file: str
    edits: list
    breaks: str
    survives: str | None
    number: int = -1


@dataclass
class Place:
    """A part of a source, and the texts that mutants put there: (number, text)."""

    start: int
    end: int
    texts: list = field(default_factory=list)


def load():
    """Returns all mutants, in the order of their files. Their numbers are their places in this order."""
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        for file, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
            stem = file.removeprefix("src/").removesuffix(".rs").removesuffix("/mod")
            mutants.extend(mutant(stem, file, entry) for entry in entries)
    for number, each in enumerate(mutants):
        each.number = number
    names = [each.name for each in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Stale(f"several mutants have the name {', '.join(twice)}")
    return mutants


def mutant(stem, file, entry):
    name = f"{stem}: {entry.get('name')}"
    unknown = entry.keys() - {"name", "at", "to", "breaks", "survives"}
    if unknown or not entry.get("name") or not entry.get("breaks"):
        raise Stale(f"{name}: an entry has name, at, to, breaks and survives, and needs name, at and breaks")
    at, to = entry["at"], entry.get("to", "")
    if isinstance(at, str):
        at, to = [at], [to]
    return Mutant(name, file, list(zip(at, to, strict=True)), entry["breaks"], entry.get("survives"))


def find(source, at, name):
    """Returns where the part in «» is in the source."""
    parts = re.split("[«»]", at.strip())
    if len(parts) != 3:
        raise Stale(f"{name}: 'at' needs one part in «»")
    before, part, after = (r"\s+".join(map(re.escape, text.split())) for text in parts)
    # Between the parts, white space counts only where `at` has some.
    ends = [r"\s*" if text != text.strip() else "" for text in (parts[0], parts[2])]
    found = list(re.finditer(f"{before}{ends[0]}({part}){ends[1]}{after}", source))
    if len(found) != 1:
        raise Stale(f"{name}: 'at' occurs {len(found)} times and must occur once:\n    {at.strip()}")
    return found[0].span(1)


def places(source, mutants):
    """Returns the places of the mutants of a source. Places are the same, apart, or one inside the other."""
    by_span = {}
    for each in mutants:
        for at, to in each.edits:
            start, end = find(source, at, each.name)
            by_span.setdefault((start, end), Place(start, end)).texts.append((each.number, to.strip()))
    return sorted(by_span.values(), key=lambda place: (place.start, -place.end))


def replaced(source, start, end, inside):
    """Returns the source from `start` to `end`, with all mutants whose places are inside it."""
    text, at = "", start
    while inside:
        place, inside = inside[0], inside[1:]
        nested = [other for other in inside if other.start < place.end]
        if any(other.end > place.end for other in nested):
            raise Stale(f"two mutants overlap at: {source[place.start:place.end]}")
        inside = inside[len(nested) :]
        old = replaced(source, place.start, place.end, nested)
        text += source[at : place.start] + switched(old, place.texts)
        at = place.end
    return text + source[at:end]


def switched(old, texts):
    """Returns the code that does what one of the mutants does if it is switched on, and what `old` does otherwise."""
    for number, new in reversed(texts):
        condition = SWITCH.format(number)
        if re.search(r"\bMUTANT\b", new):
            if len(texts) > 1:
                raise Stale(f"a mutant with MUTANT shares its place with others: {new}")
            return re.sub(r"\bMUTANT\b", condition, new)
        is_statement = not old.strip() or old.strip()[-1] in ";}" or not new
        if is_statement and not new:
            old = f"if !{condition} {{ {old} }}"
        elif is_statement:
            old = f"if {condition} {{ {new} }}" + (f" else {{ {old} }}" if old.strip() else "")
        else:
            old = f"(if {condition} {{ {new} }} else {{ {old} }})"
    return old


def mutate(root, mutants):
    """Returns the new text of every file that has mutants. Fails if an entry does not fit its file."""
    files, stale = {}, []
    for file in dict.fromkeys(each.file for each in mutants):
        own = [each for each in mutants if each.file == file]
        try:
            source = (root / file).read_text(encoding="utf-8")
            files[file] = replaced(source, 0, len(source), places(source, own))
        except FileNotFoundError:
            stale.append(f"{file}: there is no such file")
        except Stale:
            # Name all entries that do not fit, not only the first.
            stale.extend(problems(source, own))
    if stale:
        raise Stale("\n".join(stale))
    return files


def problems(source, mutants):
    found = []
    for each in mutants:
        try:
            places(source, [each])
        except Stale as problem:
            found.append(str(problem))
    if not found:
        try:
            replaced(source, 0, len(source), places(source, mutants))
        except Stale as problem:
            found.append(str(problem))
    return found
