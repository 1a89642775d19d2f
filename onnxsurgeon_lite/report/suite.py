"""A suite's checks for the terminal, as JUnit XML, and as a forge's annotations."""

from xml.etree import ElementTree

from onnxsurgeon_lite.matching.suite import SuiteOutcome, SuiteResult
from onnxsurgeon_lite.names import counted, shown
from onnxsurgeon_lite.report.metrics import explain
from onnxsurgeon_lite.report.plain import out, say, say_all, show_table
from onnxsurgeon_lite.tensors.metrics import number_text

# XML 1.0 has no control characters but these
_PRINTED = str.maketrans({chr(code): "?" for code in range(32) if chr(code) not in "\t\n"})


def show_suite(result: SuiteResult) -> None:
    """Show a line for each check, then why those that do not match fail."""
    failed = [outcome for outcome in result.outcomes if not outcome.match]
    count = counted(len(result.outcomes), "check")
    say(f"{len(failed)} of {count} failed" if failed else f"{count}: match")
    rows = [
        ("match" if o.match else "ERROR" if o.error else "MISMATCH", o.name) + _compared(o)
        for o in result.outcomes
    ]
    show_table(["", "check", "outputs", "max abs"], rows)
    for outcome in failed:
        say(f"{shown(outcome.name)}:")
        say_all(f"  {line}" for line in _reasons(outcome))


def show_annotations(result: SuiteResult) -> None:
    """Print a workflow command of GitHub for each check that fails."""
    for outcome in result.outcomes:
        if not outcome.match:
            # properties of a workflow command escape `:` and `,` as well
            texts = shown(str(outcome.model)), shown(outcome.name)
            file, title = (_escaped(text, ":,") for text in texts)
            out(f"::error file={file},title={title}::{_escaped(chr(10).join(_reasons(outcome)))}")


def junit_text(result: SuiteResult) -> str:
    """Return the suite as JUnit XML: a mismatch is a failure, what could not be compared an error."""
    suite = ElementTree.Element(
        "testsuite",
        name="onnxdbg",
        tests=str(len(result.outcomes)),
        failures=str(sum(not o.match and not o.error for o in result.outcomes)),
        errors=str(len(result.errors)),
        time=f"{sum(o.seconds for o in result.outcomes):.3f}",
    )
    for outcome in result.outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=outcome.name.translate(_PRINTED),
            classname=str(outcome.model).translate(_PRINTED),
            time=f"{outcome.seconds:.3f}",
        )
        if not outcome.match:
            # the first reason is the message, all of them are the text
            reasons = [line.translate(_PRINTED) for line in _reasons(outcome)]
            kind = "error" if outcome.error else "failure"
            ElementTree.SubElement(case, kind, message=reasons[0]).text = "\n".join(reasons)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _compared(outcome: SuiteOutcome) -> tuple[str, str]:
    """Return how many outputs were compared, and the largest difference."""
    if outcome.comparison is None:
        return "-", "-"
    found = outcome.comparison.compared.values()
    return str(len(found)), number_text(max(c.max_abs for c in found))


def _reasons(outcome: SuiteOutcome) -> list[str]:
    """Return why a check does not match."""
    if outcome.comparison is None:
        return [outcome.error]
    return [line for each in outcome.comparison.compared.items() for line in explain(*each)]


def _escaped(text: str, more: str = "") -> str:
    """Return text as a workflow command takes it: on one line, `more` escaped in properties."""
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
