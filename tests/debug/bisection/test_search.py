"""The search, with lambdas and a probe budget: no model, no file."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxsurgeon_lite.search.origins import first_bad, origins, spread
from onnxsurgeon_lite.search.subsets import by_worth, shortest, shortest_run, smallest


def chain(length):
    return lambda item: [item - 1] if item else []


@pytest.mark.parametrize("culprit", range(100))
def test_a_culprit_in_a_chain_is_found_in_few_waves(culprit):
    found = first_bad(
        99, chain(100), range(100), lambda wave: {i: i < culprit for i in wave}, width=4
    )

    assert found.bad == culprit
    assert not found.region
    assert len(found.waves) <= math.ceil(math.log(100, 5)) + 1


@pytest.mark.parametrize("culprit", range(40))
def test_an_error_that_is_masked_and_comes_back_still_leads_to_a_culprit(culprit):
    masked = {culprit + 2, culprit + 3}

    found = first_bad(
        59, chain(60), range(60), lambda wave: {i: i < culprit or i in masked for i in wave}
    )

    # 4 steps further on, the input is good and the result is bad as well: both answers are sound
    assert found.bad in (culprit, culprit + 4)


def test_nothing_to_ask_gives_the_whole_region():
    found = first_bad(9, chain(10), {2, 9}, lambda wave: dict.fromkeys(wave, True))

    assert found.bad == 9
    assert found.region == set(range(3, 9))


def test_an_item_that_cannot_be_told_stays_in_the_region():
    found = first_bad(9, chain(10), range(10), lambda wave: {i: True for i in wave if i != 8})

    assert (found.bad, found.region) == (9, {8})


def test_a_residual_stream_is_crossed_as_a_whole():
    # block k: item 2k+1 = f(2k), item 2k+2 = 2k + (2k+1): every place of the branch is crossed by the stream too
    def parents(item):
        if item == 0:
            return []
        return [item - 1] if item % 2 else [item - 1, item - 2]

    waves = first_bad(
        400, parents, range(401), lambda wave: {i: i < 201 for i in wave}, width=8
    ).waves

    assert len(waves) <= 5
    assert sum(map(len, waves)) <= 60


@st.composite
def graphs(draw):
    size = draw(st.integers(2, 40))
    parents = [
        draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        for i in range(size)
    ]
    good = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    comparable = draw(st.sets(st.integers(0, size - 1)))
    return parents, good, comparable | {size - 1}


@settings(deadline=None)
@given(graphs(), st.integers(1, 8))
def test_the_answer_is_sound_whatever_is_good(graph, width):
    parents, good, comparable = graph
    bad = len(parents) - 1
    good[bad] = False
    asked = []

    def probe(wave):
        asked.extend(wave)
        return {item: good[item] for item in wave}

    found = first_bad(bad, parents.__getitem__, comparable, probe, width=width)

    assert not good[found.bad]
    entering = {p for i in {found.bad, *found.region} for p in parents[i]} - found.region
    assert all(good[item] for item in entering)
    assert not found.region & comparable
    assert len(asked) == len(set(asked))
    assert set(asked) <= comparable


def test_a_wave_asks_at_narrow_places():
    # three parallel chains of 30 between 0 and 91, joined at 0 and 91; then a chain to 120
    def parents(item):
        if item == 0:
            return []
        if item == 91:
            return [88, 89, 90]
        return [max(0, item - 3)] if item < 91 else [item - 1]

    wave = spread(range(121), parents, range(121), 4)

    assert {item for item in wave if item > 90}
    assert len(wave) <= 12


class Faults:
    """A graph whose items are computed: bad where planted, or where a parent is bad and the item does not mask it."""

    def __init__(self, parents, planted, masking):
        self.parents, self.planted, self.masking = parents, planted, masking
        self.healed, self.probes = set(), []

    def probe(self, wave):
        self.probes.append(list(wave))
        good = []
        for item, above in enumerate(self.parents):
            handed = item not in self.masking and any(not good[p] for p in above)
            good.append(item in self.healed or not (item in self.planted or handed))
        return {item: good[item] for item in wave}

    def heal(self, items):
        self.healed.update(items)
        return []

    def found(self, comparable, width=8):
        waves = origins(
            comparable, self.parents.__getitem__, self.probe, self.heal, lambda _: width
        )
        return [origin for wave in waves for origin in wave]


@st.composite
def faulty_graphs(draw):
    size = draw(st.integers(2, 40))
    parents = [
        draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        for i in range(size)
    ]
    items = st.sets(st.integers(0, size - 1))
    return Faults(parents, draw(items), draw(items)), draw(st.integers(1, 9))


@settings(deadline=None)
@given(faulty_graphs())
def test_every_planted_fault_is_an_origin_and_nothing_else(graph_and_width):
    graph, width = graph_and_width

    found = graph.found(range(len(graph.parents)), width)

    assert sorted(origin.bad for origin in found) == sorted(graph.planted)
    assert not any(origin.region for origin in found)


@settings(deadline=None)
@given(faulty_graphs(), st.data())
def test_with_partial_references_a_region_holds_each_origin(graph_and_width, data):
    graph, width = graph_and_width
    everything = st.sets(st.integers(0, len(graph.parents) - 1))
    comparable = data.draw(everything)

    for origin in graph.found(comparable, width):
        assert not origin.region & comparable
        assert ({origin.bad} | origin.region) & graph.planted


def test_an_agreeing_graph_is_asked_about_once():
    graph = Faults([[i - 1] if i else [] for i in range(50)], set(), set())

    assert not graph.found(range(50), width=10)
    assert sum(map(len, graph.probes)) == 50


def test_nothing_below_what_cannot_be_healed_is_called_an_origin():
    graph = Faults([[i - 1] if i else [] for i in range(9)], {3, 6}, set())
    graph.heal = lambda items: items

    assert [origin.bad for origin in graph.found(range(9))] == [3]


def test_behind_a_good_value_below_what_cannot_be_healed_origins_are_found():
    graph = Faults([[i - 1] if i else [] for i in range(12)], {3, 8}, {5})
    graph.heal = lambda items: items

    assert [origin.bad for origin in graph.found(range(12), width=4)] == [3, 8]


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 4))
def test_the_smallest_subset_holds_and_nothing_in_it_can_be_left_out(items, needed):
    wanted = set(sorted(items)[:needed])
    asked = []

    def holds(subset):
        asked.append(tuple(subset))
        return wanted <= set(subset)

    found = smallest(sorted(items), holds)

    if wanted:
        assert set(found) == wanted
    assert len(asked) <= 4 * len(items) * max(1, needed) + 8
    assert () not in asked


@given(st.integers(2, 12), st.integers(1, 8), st.randoms(use_true_random=False))
def test_no_single_item_can_be_left_out_whatever_the_predicate_is(size, kept, random):
    answers = {frozenset(range(size)): True}

    def holds(subset):
        return answers.setdefault(frozenset(subset), len(subset) > kept or random.random() < 0.3)

    found = smallest(range(size), holds)

    assert answers[frozenset(found)]
    if len(found) > 1:
        assert not any(holds([other for other in found if other != item]) for item in found)


@pytest.mark.parametrize("culprit", range(0, 1000, 37))
def test_one_of_a_thousand_items_is_found_with_few_questions(culprit):
    asked = []

    def holds(subset):
        asked.append(subset)
        return culprit in subset

    assert smallest(range(1000), holds) == [culprit]
    assert len(asked) <= 2 * math.ceil(math.log2(1000)) + 1


def test_equal_items_count_separately_and_keep_their_order():
    assert smallest("abcabc", lambda some: "".join(some).count("a") == 2) == ["a", "a"]


def test_the_smallest_subset_so_far_holds_when_no_question_is_left():
    asked = []

    def holds(subset):
        asked.append(subset)
        return {4, 9} <= set(subset)

    found = smallest(range(20), holds, most=6)

    assert {4, 9} < set(found)
    assert len(asked) == 6


def test_a_subset_that_never_holds_is_empty():
    assert smallest([1, 2, 3], lambda _: False) == []
    assert smallest([], lambda _: True) == []


def test_a_node_is_worth_the_roundings_that_it_frees():
    effects = [3.0, 4.0, 12.0, 0.5]
    needs = [frozenset("ab"), frozenset("bc"), frozenset("d"), frozenset[str]()]

    groups, left = by_worth(effects, needs)

    assert groups == [{"d"}, {"b", "c"}, {"a"}]
    assert left == pytest.approx([169.25**0.5, 25.25**0.5, 9.25**0.5, 0.5])


@pytest.mark.parametrize("fewest", [1, 2, 17, 50, 99])
def test_the_fewest_groups_are_found_where_the_prediction_is_right_up_to_a_power(fewest):
    left = [100.0 - n for n in range(101)]
    questions = []

    def excess(count):
        questions.append(count)
        return ((100.5 - count) / (100.5 - fewest)) ** 1.7

    assert shortest(left, excess) == fewest
    assert len(questions) <= 8


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("start", range(0, 95, 7))
def test_items_that_follow_one_another_are_found_by_halving(start, length):
    wanted, asked = set(range(start, start + length)), []

    def holds(items: list[int]) -> bool:
        asked.append(items)
        return wanted <= set(items)

    assert shortest_run(range(100), holds) == sorted(wanted)
    assert len(asked) <= 7 + 2 * length


def test_items_far_apart_are_found_with_those_between():
    assert shortest_run(range(9), lambda items: {2, 6} <= {*items}) == [2, 3, 4, 5, 6]


def test_one_item_is_found_without_a_question():
    assert shortest_run(["a"], lambda items: 1 / 0) == ["a"]
