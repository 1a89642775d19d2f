"""Comparison: shape, dtype, then values; non-finite positions first; the verdict alone says the same."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxsurgeon_lite import Tolerance, compare
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.matching.sets import compare_sets
from onnxsurgeon_lite.tensors.comparison import (
    DEFAULTS,
    EXACT,
    Scratch,
    agrees,
    default_tolerance,
    surely_agrees,
)
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet

LOW_PRECISION = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
]


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def reference_set(**values: object) -> ReferenceSet:
    entries = {name: Entry(lambda value=value: value) for name, value in values.items()}
    return ReferenceSet("memory", entries)


@pytest.mark.parametrize(
    ("actual", "allowed"), [(100.0 + 0.25, True), (100.0 + 0.375, False)], ids=["within", "beyond"]
)
def test_an_element_may_be_off_by_atol_and_rtol_of_the_reference(actual, allowed):
    tolerance = Tolerance(atol=0.125, rtol=0.00125)  # 0.25 at a reference of 100

    comparison = compare(floats(actual), floats(100.0), tolerance)

    assert comparison.match is allowed
    assert comparison.exceeding == (0 if allowed else 1)


def test_default_tolerances_count_in_units_of_the_largest_reference():
    reference = floats(1000.0, 0.0)

    near_zero = compare(floats(1000.0, 0.009), reference)
    alone = compare(floats(0.009), floats(0.0))

    assert near_zero.match
    assert not alone.match


def test_rtol_is_of_the_reference_and_not_of_the_actual():
    tolerance = Tolerance(atol=0, rtol=0.5)

    assert compare(floats(1.5), floats(1.0), tolerance).match
    assert not compare(floats(1.0), floats(3.0), tolerance).match
    assert compare(floats(1.0), floats(2.0), tolerance).match


def test_another_shape_is_told_before_anything_else():
    comparison = compare(floats(1, 2, 3), floats(1, 2).reshape(1, 2))

    assert (comparison.match, comparison.reason) == (False, "shape")
    assert comparison.shapes == ((3,), (1, 2))


def test_a_nan_where_the_reference_has_none_is_told_first():
    actual, reference = floats(1, 5, np.nan, 2), floats(1, 0, 3, 2)

    comparison = compare(actual, reference)

    assert (comparison.reason, comparison.non_finite) == ("non-finite", (2,))
    assert comparison.nan == (1, 0)
    assert comparison.exceeding == 2
    assert comparison.worst is not None
    assert comparison.worst.index == (1,)


def test_a_nan_alone_is_not_called_the_worst_of_the_numbers():
    comparison = compare(floats(np.nan, 1), floats(0, 1))

    assert comparison.non_finite == (0,)
    assert comparison.worst is None


def test_the_same_infinities_and_nans_match():
    values = floats(np.inf, -np.inf, np.nan, 1)

    comparison = compare(values, values.copy(), EXACT)

    assert comparison.match
    assert comparison.nan == (1, 1)
    assert comparison.inf == (2, 2)


def test_infinities_of_other_signs_mismatch():
    comparison = compare(floats(np.inf), floats(-np.inf), Tolerance(1e9, 1e9))

    assert (comparison.match, comparison.reason) == (False, "non-finite")


def test_a_scalar_has_an_empty_index():
    comparison = compare(np.array(3, np.float32), np.array(4, np.float32))

    assert comparison.worst is not None
    assert comparison.worst.index == ()
    assert comparison.worst.difference == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, object, ml_dtypes.int4])
def test_nothing_matches_nothing(dtype):
    empty = np.zeros((0, 3), dtype)

    comparison = compare(empty, empty.copy())

    assert comparison.match
    assert agrees(empty, empty.copy())
    assert comparison.elements == 0


@pytest.mark.parametrize(
    ("actual", "reference"),
    [
        (np.array([2**53 + 1]), np.array([2**53])),
        (np.array([2**63 + 1], np.uint64), np.array([2**63], np.uint64)),
        (np.array([2**53 + 1], np.uint64), np.array([2**53], np.int64)),
    ],
    ids=["int64", "uint64", "both"],
)
def test_integers_too_large_for_a_float64_are_compared_exactly(actual, reference):
    comparison = compare(actual, reference)

    assert not comparison.match
    assert not agrees(actual, reference)
    assert comparison.worst is not None
    assert (comparison.worst.actual, comparison.worst.difference) == (int(actual[0]), 1.0)
    assert comparison.max_abs == 1.0


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_small_dtypes_are_compared_as_the_numbers_they_hold(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    ones, others = np.ones(4, dtype), np.array([1, 1, 0.25 if "int" not in name else 0, 1], dtype)

    assert compare(ones, ones.copy(), EXACT).match
    comparison = compare(others, ones, EXACT)
    assert (comparison.match, comparison.exceeding) == (False, 1)


@pytest.mark.parametrize("name", LOW_PRECISION)
def test_different_dtypes_are_compared_as_numbers_and_it_is_said(name):
    small = np.ones(3, getattr(ml_dtypes, name))

    comparison = compare(small, np.ones(3, np.float32))

    assert comparison.match
    assert comparison.notes == [f"compared across dtypes: {small.dtype} with float32"]


def test_the_coarser_dtype_sets_the_tolerance_of_a_pair():
    half, single = np.dtype(np.float16), np.dtype(np.float32)

    assert default_tolerance(half, single) == DEFAULTS["float16"]
    assert default_tolerance(np.dtype(np.int32), single) == DEFAULTS["float32"]
    assert default_tolerance(np.dtype(np.int32), np.dtype(object)) == EXACT


def test_strings_never_match_numbers():
    comparison = compare(np.array(["1"], object), floats(1))

    assert (comparison.match, comparison.reason) == (False, "dtype")


def test_strings_are_compared_as_text_however_they_are_kept():
    kept = np.array([b"a", b"\xc3\xa9"], object)

    assert compare(kept, np.array(["a", "é"])).match
    comparison = compare(kept, np.array(["a", "e"]))
    assert comparison.worst is not None
    assert (comparison.worst.index, comparison.worst.actual) == ((1,), "é")


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_differ_by_the_size_of_their_difference(dtype):
    reference = np.array([[1 + 1j, 10]], dtype)

    comparison = compare(reference + np.array(3 + 4j, dtype), reference, Tolerance(5.5, 0))
    mismatch = compare(reference + np.array([0, 3 + 4j], dtype), reference, Tolerance(1, 0))

    assert comparison.match
    assert comparison.max_abs == pytest.approx(5)
    assert (mismatch.exceeding, mismatch.elements) == (1, 2)
    assert mismatch.worst is not None
    assert mismatch.worst.index == (0, 1)


def test_a_complex_nan_is_not_finite():
    comparison = compare(np.array([1, complex(0, np.nan)]), np.array([1, 0j]))

    assert (comparison.reason, comparison.non_finite) == ("non-finite", (1,))


@pytest.mark.parametrize(
    ("dtype", "step"), [(np.float16, 2**-10), (np.float32, 2**-23), (np.float64, 2**-52)]
)
def test_ulp_counts_representable_numbers_between(dtype, step):
    actual, reference = np.array([1 + 3 * step], dtype), np.array([1], dtype)

    assert compare(actual, reference).metric("ulp") == 3
    assert compare(reference, reference.copy()).metric("ulp") == 0
    assert compare(np.array([0.0], dtype), np.array([-0.0], dtype)).metric("ulp") == 0


def test_ulp_of_bfloat16_and_across_zero():
    tiny = np.nextafter(np.float32(0), np.float32(1))

    assert (
        compare(np.array([1.0078125], ml_dtypes.bfloat16), np.ones(1, ml_dtypes.bfloat16)).metric(
            "ulp"
        )
        == 1
    )
    assert compare(floats(tiny), floats(-tiny)).metric("ulp") == 2


def test_ulp_between_the_ends_of_float64_does_not_overflow():
    ends = np.finfo(np.float64).max

    ulp = compare(np.array([ends]), np.array([-ends])).metric("ulp")

    assert ulp == 2 * int(np.array([ends]).view(np.int64)[0])


def test_metrics_against_their_formulas():
    actual, reference = floats(1, 2, 3, 4), floats(1, 2, 3, 5)

    comparison = compare(actual, reference)

    assert comparison.max_abs == 1
    assert comparison.metric("max_rel") == pytest.approx(0.2)
    assert comparison.metric("rmse") == pytest.approx(0.5)
    assert comparison.metric("sqnr") == pytest.approx(10 * np.log10(39 / 1))
    cosine = actual @ reference / np.linalg.norm(actual) / np.linalg.norm(reference)
    assert comparison.metric("cosine") == pytest.approx(cosine)


def test_worst_is_the_element_farthest_beyond_its_allowance():
    actual, reference = floats(1000.5, 1.25), floats(1000.0, 1.0)

    comparison = compare(actual, reference, Tolerance(atol=0, rtol=0.001))

    assert comparison.worst is not None
    assert comparison.worst.index == (1,)
    assert comparison.worst.difference == 0.25
    assert comparison.worst.allowed == pytest.approx(0.001)


def test_blocks_are_put_together_again():
    reference = np.zeros((3, 1 << 17), np.float32)
    actual = reference.copy()
    actual[2, 5], actual[0, 1], actual[1, 7] = 4, 3, np.inf

    comparison = compare(actual, reference)

    assert comparison.exceeding == 3
    assert comparison.non_finite == (1, 7)
    assert comparison.worst is not None
    assert comparison.worst.index == (2, 5)
    assert comparison.metric("rmse") == pytest.approx(5 / np.sqrt(reference.size - 1))


def test_numbers_at_the_ends_of_their_range_give_no_warning():
    ends = np.array([np.finfo(np.float64).max, 5e-324, 0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comparison = compare(-ends, ends)

    assert not comparison.match
    assert comparison.max_abs == np.inf


DTYPES = [np.float16, np.float32, np.float64, np.complex64, np.int8, np.int64, np.uint64, np.bool_]
TOLERANCES = st.one_of(
    st.none(),
    st.builds(
        Tolerance,
        st.sampled_from([0.0, 1e-6, 0.01, 1.0, 1e5]),
        st.sampled_from([0.0, 1e-6, 0.01, 0.4, 2.0]),
        st.booleans(),
    ),
)


@st.composite
def pairs(draw):
    """Two arrays of one shape, mostly near each other."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    reference = draw(hnp.arrays(dtype, shape))
    other = draw(hnp.arrays(draw(st.sampled_from([dtype, *DTYPES])), shape))
    if draw(st.booleans()) or other.dtype != dtype:
        return other, reference
    with np.errstate(all="ignore"):
        near = reference + reference * dtype.type(draw(st.sampled_from([0, 1, 0.01, 1e-6])))
    return near.astype(dtype), reference


@settings(max_examples=400, deadline=None)
@given(pairs(), TOLERANCES)
def test_the_verdict_alone_is_that_of_the_comparison(arrays, tolerance):
    actual, reference = arrays

    verdict = agrees(actual, reference, tolerance)

    assert verdict == compare(actual, reference, tolerance).match


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize(
    "tolerance", [Tolerance(0, 0.01), Tolerance(0.1, 0.01), Tolerance(1e-3, 0)]
)
def test_the_verdict_alone_is_right_at_the_very_edge(tolerance, dtype):
    reference = np.linspace(0.5, 3, 50).astype(dtype)
    allowed = tolerance.atol + tolerance.rtol * np.abs(reference.astype(np.complex128))
    edge = (reference.astype(np.complex128).real + allowed).astype(reference.real.dtype)

    verdicts = set()
    for steps in range(-3, 4):
        off = edge + steps * np.spacing(edge)
        for one, other in zip(off.astype(dtype), reference, strict=True):
            verdict = agrees(np.array([one]), np.array([other]), tolerance)
            verdicts.add(verdict)
            assert verdict == compare(np.array([one]), np.array([other]), tolerance).match

    assert verdicts == {True, False}


@settings(max_examples=100, deadline=None)
@given(hnp.arrays(np.dtype(np.float32), hnp.array_shapes(min_dims=0, min_side=0)))
def test_everything_matches_itself_exactly(values):
    comparison = compare(values, values.copy(), EXACT)

    assert comparison.match
    assert comparison.exceeding == 0


def test_sets_are_compared_where_both_have_a_name():
    actual = reference_set(a=floats(1), b=floats(2))

    result = compare_sets(actual, reference_set(b=floats(2), c=floats(3)))

    assert list(result.compared) == ["b"]
    assert (result.only_actual, result.only_reference) == (["a"], ["c"])
    assert result.match


def test_sets_without_a_common_name_are_refused():
    with pytest.raises(ReferenceSetError, match="has none of the 1 tensors"):
        compare_sets(reference_set(a=floats(1)), reference_set(b=floats(1)))


def test_sequences_are_compared_element_by_element():
    actual = reference_set(s=[floats(1), floats(2)], none=[])

    result = compare_sets(actual, reference_set(s=[floats(1), floats(3)], none=[]))
    shorter = compare_sets(actual, reference_set(s=[floats(1)]))

    assert {name: c.match for name, c in result.compared.items()} == {
        "s[0]": True,
        "s[1]": False,
        "none": True,
    }
    assert not shorter.match


def test_an_array_that_runs_backwards_agrees_with_its_copy():
    backwards = np.arange(4, dtype=np.float32)[::-1]

    assert agrees(backwards, backwards.copy())


def test_a_number_never_agrees_with_an_infinite_reference():
    zero, infinite = np.zeros(3, np.float32), np.full(3, np.inf, np.float32)

    assert not agrees(zero, infinite)
    assert not agrees(infinite, zero)
    assert agrees(infinite, infinite.copy())


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(-2000, 2000, width=32)),
    st.sampled_from([0.0, 1e-6, 1e-5, 1e-4, 1e-2, np.nan, np.inf]),
    st.sampled_from([None, Tolerance(1e-5, 0), Tolerance(0, 1e-3), Tolerance(1e-4, 1e-4, True)]),
)
def test_what_agrees_piece_by_piece_agrees(reference, error, tolerance):
    with np.errstate(all="ignore"):
        actual = reference * np.float32(1 + error)

    if surely_agrees(InMemory(actual), InMemory(reference), tolerance, Scratch()):
        assert agrees(actual, reference, tolerance)


def test_equal_bytes_surely_agree():
    for dtype in ("int64", "bool", "float16", "float32"):
        array = InMemory((np.arange(1 << 17) % 100).astype(dtype))

        assert surely_agrees(array, array, None, Scratch())


class InMemory:
    """An array that is read piece by piece."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self.raw = array.reshape(-1).view(np.uint8)

    def fill(self, start: int, target: memoryview) -> None:
        target[:] = self.raw[start : start + target.nbytes].data
