"""Precision and recall of the detectors on the corpora, and false positives on benign text: `make guardrail-report`.

    report.py TOOLGATE             both parts, into docs/guardrails.md and docs/guardrails.svg
    report.py TOOLGATE --tuning    the tuning part alone, with every miss and false alarm; writes nothing

Every document goes through `toolgate guardrail test --lines`, so through the code that calls go through. The held-out part is only
counted: its misses are never shown, so that no rule can be fitted to them.
"""

import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = ROOT / "target" / "guardrails"
sys.path.insert(0, str(HERE.parent / "e2e"))

# What must be reached on the held-out part: recall and precision, by type; `secrets` is all of the types that there is a rule for.
TARGETS = {"secrets": (0.97, 0.99), "card": (0.99, None), "iban": (0.99, None), "email": (0.98, None)}
# Found by design: the types of the corpora that a detector claims to find. What is left out is counted beside.
UNCLAIMED = {"phone, national", "goal"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("toolgate", type=pathlib.Path)
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    enter_environment()
    import corpus

    parts = ["tuning"] if options.tuning else list(corpus.SEEDS)
    scores = {part: Score(part, options.toolgate.resolve(), options.tuning) for part in parts}
    for score in scores.values():
        print(score.table())
    if not options.tuning:
        write(scores["tuning"], scores["held-out"])
    missed = [words for score in scores.values() for words in score.targets_missed()]
    print("\n".join(missed) or "all targets reached")
    sys.exit(1 if missed else 0)


def enter_environment():
    """Installs what the corpora are made of, below target/, and goes on in it."""
    import install

    folder = HOME / "python"
    install.install_python(folder, HERE / "requirements.txt")
    lock = (HERE / "npm/package-lock.json").read_text()
    if install.fresh(HOME / "npm", lock):
        install.say("npm package: the rules of secretlint")
        (HOME / "npm").mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            (HOME / "npm" / name).write_text((HERE / "npm" / name).read_text())
        install.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], HOME / "npm")
        install.done(HOME / "npm", lock)
    if pathlib.Path(sys.prefix) != folder:
        sys.exit(subprocess.run([folder / "bin/python", *sys.argv]).returncode)


class Count:
    """Hits of a number of tries, with the 95 % interval of Wilson."""

    def __init__(self, hits, tries):
        self.hits, self.tries = hits, tries

    def bounds(self):
        if not self.tries:
            return 0.0, 0.0, 0.0
        z, n = 1.959964, self.tries
        p = self.hits / n
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return p, max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self):
        if not self.tries:
            return "–"
        p, low, high = self.bounds()
        return f"{p:.4f} ({low:.4f}–{high:.4f})"


class Score:
    """What the detectors made of a part."""

    def __init__(self, part, toolgate, verbose):
        import corpus

        self.part, self.verbose = part, verbose
        self.documents = corpus.of_part(part, HOME / "npm")
        self.found = collections.Counter()  # labelled spans by type: found
        self.labelled = collections.Counter()
        self.unclaimed = collections.Counter()
        self.false = collections.Counter()  # false alarms by detector and kind, in labelled corpora
        self.true = collections.Counter()
        self.benign_bytes = collections.Counter()
        self.benign_leaves = collections.Counter()
        self.benign = collections.Counter()
        self.benign_kinds = collections.Counter()
        for document, answer in zip(self.documents, ask(toolgate, self.documents), strict=True):
            self.judge(document, answer)

    def judge(self, document, answer):
        matches = [match for match in answer["matches"] if match["place"] != "name"]
        assert not answer["failures"] and len(matches) < 256, answer
        if document.family == "benign":
            text = document.text.encode()
            self.benign_bytes[document.group] += len(text)
            self.benign_leaves[document.group] += 1
            for match in matches:
                self.benign[document.group, match["detector"]] += 1
                self.benign_kinds[document.group, match["detector"] + "/" + match["type"]] += 1
                self.tell("benign", match["type"], text[match["bytes"][0] - 20:match["bytes"][1] + 10])
            return
        own = [match for match in matches if match["detector"] == document.family]
        for start, end, kind in document.spans:
            self.labelled[document.family, kind] += 1
            hits = [match for match in own if match["bytes"][0] < end and match["bytes"][1] > start]
            self.found[document.family, kind] += bool(hits)
            if not hits and kind not in UNCLAIMED:
                self.tell("missed", kind, json.dumps(document.value))
        for match in own:
            start, end = match["bytes"]
            right = any(start < high and end > low for low, high, _ in document.spans)
            (self.true if right else self.false)[document.family, match["type"]] += 1
            if not right:
                self.tell("false", match["type"], json.dumps(document.value))

    def tell(self, *words):
        if self.verbose:
            print(*words)

    def kinds(self, family):
        return sorted({kind for name, kind in self.labelled if name == family})

    def claimed(self, kind, family):
        """Whether the detector has a type for it at all."""
        if family != "secrets":
            return kind not in UNCLAIMED
        rules = (ROOT / "conf/guardrails/secrets.toml").read_text()
        return f'id = "{kind}' in rules

    def recall(self, family, kind=None):
        kinds = [kind] if kind else [kind for kind in self.kinds(family) if self.claimed(kind, family)]
        return Count(sum(self.found[family, kind] for kind in kinds), sum(self.labelled[family, kind] for kind in kinds))

    def precision(self, family, kind=None):
        """Of a kind that findings bear; all kinds of the detector without one."""
        pick = lambda counter: sum(n for (name, found), n in counter.items() if name == family and kind in (None, found))
        true = pick(self.true)
        return Count(true, true + pick(self.false))

    def rows(self):
        """Family, type, recall, precision."""
        yield "secrets", "all types", self.recall("secrets"), self.precision("secrets")
        for kind in self.kinds("secrets"):
            if self.claimed(kind, "secrets"):
                yield "secrets", kind, self.recall("secrets", kind), None
        for kind in ("card", "iban", "email", "us_ssn"):
            yield "personal_data", kind, self.recall("personal_data", kind), self.precision("personal_data", kind)
        for kind in ("phone, with +", "phone, North American", "phone, national"):
            yield "personal_data", kind, self.recall("personal_data", kind), self.precision("personal_data", "phone") if kind == "phone, with +" else None
        yield "prompt_injection", "attack", self.recall("prompt_injection", "attack"), None
        yield "prompt_injection", "goal, bare", self.recall("prompt_injection", "goal"), None

    def targets_missed(self):
        for name, (recall, precision) in TARGETS.items():
            family, kind = ("secrets", None) if name == "secrets" else ("personal_data", name)
            for what, wanted, count in (("recall", recall, self.recall(family, kind)), ("precision", precision, self.precision(family, kind))):
                if wanted and count.bounds()[0] < wanted:
                    yield f"{self.part}: {what} of {name} is {count}, not {wanted}"

    def table(self):
        lines = [f"{self.part}: {len(self.documents)} documents"]
        lines += [f"{family:<17} {kind:<34} recall {recall} n={recall.tries}  precision {precision or '–'}" for family, kind, recall, precision in self.rows()]
        lines += [f"no type: {kind}: {Count(self.found['secrets', kind], self.labelled['secrets', kind])}" for kind in self.kinds("secrets") if not self.claimed(kind, "secrets")]
        for (group, kind), n in sorted(self.benign_kinds.items()):
            lines.append(f"{group}: {kind}: {n} in {self.benign_bytes[group] / 1e6:.2f} MB")
        return "\n".join(lines)


def ask(toolgate, documents):
    """The answers of the command, a line each; its own conf lies beside the policy."""
    conf = HOME / "toolgate.toml"
    conf.write_text(f'[policy]\nfiles = ["{HERE / "policy.toml"}"]\n')
    given = HOME / "documents.ndjson"
    with given.open("w") as file:
        file.writelines(json.dumps(document.value) + "\n" for document in documents)
    command = [toolgate, "guardrail", "test", "--conf", conf, "--stage", "output", "--lines", "--file", given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode not in (0, 1) or done.stderr:
        sys.exit(f"guardrail-report: {done.stderr[:2000]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(tuning, held_out):
    """The tables into docs/guardrails.md, the chart beside it."""
    lines = ["| detector | type | recall, held out | n | recall, tuning | precision, held out | of |", "|---|---|---|---|---|---|---|"]
    for (family, kind, recall, precision), (_, _, before, _) in zip(held_out.rows(), tuning.rows(), strict=True):
        lines.append(f"| `{family}` | {kind} | {recall} | {recall.tries:,} | {before} | {precision or '–'} | {precision.tries if precision else ''} |")
    lines += ["", "| benign text, both parts | MB | leaves | findings of | per MB | per million leaves |", "|---|---|---|---|---|---|"]
    scores = (tuning, held_out)
    for group in sorted({group for score in scores for group in score.benign_bytes}):
        megabytes = sum(score.benign_bytes[group] for score in scores) / 1e6
        leaves = sum(score.benign_leaves[group] for score in scores)
        kinds = sorted({kind for score in scores for found, kind in score.benign_kinds if found == group})
        for kind in kinds or ["none"]:
            n = sum(score.benign_kinds[group, kind] for score in scores)
            lines.append(f"| {group} | {megabytes:.2f} | {leaves:,} | `{kind}`: {n} | {n / megabytes:.1f} | {n / leaves * 1e6:,.0f} |")
    unknown = [kind for kind in held_out.kinds("secrets") if not held_out.claimed(kind, "secrets")]
    lines += ["", "Types of detect-secrets and secretlint that `secrets` has no rule for, and how many of theirs it finds all the same: "
              + ", ".join(f"{kind} {held_out.found['secrets', kind]} of {held_out.labelled['secrets', kind]}" for kind in unknown) + "."]
    page = ROOT / "docs/guardrails.md"
    before, rest = page.read_text().split("<!-- report -->\n", 1)
    after = rest.split("<!-- /report -->", 1)[1]
    page.write_text(before + "<!-- report -->\n" + "\n".join(lines) + "\n<!-- /report -->" + after)
    (ROOT / "docs/guardrails.svg").write_text(chart(list(held_out.rows())))


def chart(rows):
    """A line a type: recall and precision of the held-out part, with their intervals, from 0.9 on; below is drawn at the edge."""
    low, left, width, step = 0.9, 260, 420, 20
    x = lambda value: left + (max(value, low) - low) / (1 - low) * width
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{len(rows) * step + 60}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', '<text x="10" y="18">Held-out part: recall (blue), precision (orange), 95 % intervals</text>']
    bottom = 36 + len(rows) * step
    for tick in (0.9, 0.92, 0.94, 0.96, 0.98, 1.0):
        out.append(f'<line x1="{x(tick):.1f}" y1="30" x2="{x(tick):.1f}" y2="{bottom}" stroke="#ddd"/><text x="{x(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{tick:.2f}</text>')
    for at, (family, kind, recall, precision) in enumerate(rows):
        y = 44 + at * step
        out.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{family}: {kind}</text>')
        for count, colour, shift in ((recall, "#1f77b4", -3), (precision, "#ff7f0e", 3)):
            if count is None or not count.tries:
                continue
            value, start, end = count.bounds()
            out.append(f'<line x1="{x(start):.1f}" y1="{y + shift}" x2="{x(end):.1f}" y2="{y + shift}" stroke="{colour}"/>')
            mark = f'<circle cx="{x(value):.1f}" cy="{y + shift}" r="3" fill="{colour}"/>' if value >= low else f'<text x="{left + 2}" y="{y + shift + 4}" fill="{colour}" font-size="10">◂ {value:.2f}</text>'
            out.append(mark)
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    main()
