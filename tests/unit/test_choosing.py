"""Choosing seats: together first, no seat left alone, and groups split as little as possible."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.choosing import (
    Choice,
    Cluster,
    Wish,
    choose_seats,
    nearest_block,
    orphans_left,
    row_is_almost_taken,
)


def chosen(stretch: str, count: int, *, orphans_refused: bool = True, max_split: int | None = 2) -> Choice | None:
    return choose_seats([stretch.encode()], Wish(count, orphans_refused, max_split))


def places(choice: Choice | None) -> list[int]:
    assert choice is not None
    return [place for each in choice.clusters for place in range(each.start, each.start + each.length)]


def test_the_best_seats_of_an_empty_zone() -> None:
    assert places(chosen(".....|.....", 3)) == [0, 1, 2]


def test_two_of_row_a_are_seats_6_and_7() -> None:
    # Given the row of the worked example: 1 free, 2 taken, 3 and 4 free, 5 taken, 6 to 8 free, 9 taken, 10 free.
    row = ".h..h...h."

    # Then 3 and 4 leave nobody alone and come first; with them gone, 6 and 7 would leave 8 alone, and are the only two.
    assert places(chosen(row, 2)) == [2, 3]
    assert places(chosen(row.replace("h..h", "hhhh"), 2, orphans_refused=False)) == [5, 6]
    assert chosen(row.replace("h..h", "hhhh"), 2, max_split=None) is None


def test_a_run_that_would_leave_one_seat_is_passed_over() -> None:
    assert places(chosen("...|....", 2)) == [4, 5]


def test_a_run_that_fits_exactly_is_as_good_as_a_long_one() -> None:
    assert places(chosen("..|.....", 2)) == [0, 1]


def test_a_single_seat_fills_the_gap_that_is_there() -> None:
    assert places(chosen("..|.h...", 1)) == [3]


@pytest.mark.parametrize("refused", [True, False])
def test_a_row_almost_sold_excuses_the_seat_left_alone(refused: bool) -> None:
    row = "s" * 28 + ".."

    assert row_is_almost_taken(row.encode())
    assert places(chosen(row, 1, orphans_refused=refused, max_split=None)) == [28]


def test_orphans_are_refused_or_told() -> None:
    assert chosen("...", 2, max_split=None) is None
    assert chosen("...", 2, orphans_refused=False) == Choice(0, (Cluster(0, 2),), (2,))


def test_a_group_is_split_between_neighbouring_rows() -> None:
    choice = chosen("....|..|..", 6)

    assert choice == Choice(0, (Cluster(0, 4), Cluster(5, 2)))


def test_a_group_is_split_into_as_few_clusters_as_possible() -> None:
    assert chosen("..h..|...", 5) == Choice(0, (Cluster(0, 2), Cluster(6, 3)))


def test_rows_further_apart_than_the_policy_says_are_not_joined() -> None:
    assert chosen("..|hh|hh|..", 4, max_split=2) is None
    assert places(chosen("..|hh|hh|..", 4, max_split=3)) == [0, 1, 9, 10]


def test_a_strict_group_is_not_split() -> None:
    assert chosen("....|..|..", 6, max_split=None) is None


def test_a_clean_choice_in_a_later_zone_is_better_than_an_orphan_in_the_first() -> None:
    assert choose_seats([b"...", b"...."], Wish(2, orphans_refused=False)) == Choice(1, (Cluster(0, 2),))


def test_orphans_of_named_seats() -> None:
    # The worked example: of five free seats the second and the fourth are booked.
    assert orphans_left(b".....", [1, 3]) == (0, 2, 4)


def test_a_seat_that_was_alone_before_is_not_an_orphan_of_this_choice() -> None:
    assert orphans_left(b".h....", [2, 3, 4, 5]) == ()


@pytest.mark.parametrize(
    ("stretch", "place", "start"),
    [
        # The row of the worked example: next to what is taken, and nobody left alone.
        (".h..h...h.", 5, 2),
        ("....hh....", 4, 2),
        ("....hh....", 5, 6),
        ("..|hhhh|..", 3, 0),
        # In the middle of a row, but not one seat away from its end.
        ("..........", 5, 5),
        ("..........", 7, 6),
        ("..........", 1, 0),
    ],
)
def test_the_nearest_two_that_leave_nobody_alone(stretch: str, place: int, start: int) -> None:
    assert nearest_block([stretch.encode()], [place], Wish(2)) == Choice(0, (Cluster(start, 2),))


def test_an_offer_leaves_a_seat_alone_only_if_no_zone_has_better_and_it_is_allowed() -> None:
    assert nearest_block([b"...", b"h...."], [0, 0], Wish(2, orphans_refused=False)) == Choice(1, (Cluster(1, 2),))
    assert nearest_block([b"...", b"hh"], [1, 0], Wish(2, orphans_refused=False)) == Choice(0, (Cluster(1, 2),), (0,))
    assert nearest_block([b"...", b"hh"], [1, 0], Wish(2)) is None


maps = st.lists(st.text(".hsb", min_size=1, max_size=12), min_size=1, max_size=6).map("|".join)


@given(maps, st.integers(1, 6), st.booleans(), st.none() | st.integers(0, 3))
def test_a_choice_keeps_the_rules(stretch: str, count: int, refused: bool, max_split: int | None) -> None:
    choice = chosen(stretch, count, orphans_refused=refused, max_split=max_split)
    clean = clean_blocks(stretch, count)
    if choice is None:
        assert not clean
        return

    taken = places(choice)
    assert len(taken) == len(set(taken)) == count
    assert all(stretch[place] == "." for place in taken)
    rows = [stretch.count("|", 0, place) for place in taken]
    assert max(rows) - min(rows) <= (max_split or 0)
    if clean:
        assert taken == clean[0]
        assert choice.orphans == ()
    if refused:
        assert all(row_is_almost_taken(row_of(stretch, orphan)) for orphan in choice.orphans)


def clean_blocks(stretch: str, count: int) -> list[list[int]]:
    """Every block of seats next to each other that leaves nobody alone, found by trying."""
    blocks = [list(range(start, start + count)) for start in range(len(stretch) - count + 1)]
    return [block for block in blocks if is_clean(stretch, block)]


def is_clean(stretch: str, block: Sequence[int]) -> bool:
    free = all(stretch[place] == "." for place in block)
    return free and not orphans_left(stretch.encode(), block)


def row_of(stretch: str, place: int) -> bytes:
    start = stretch.rfind("|", 0, place) + 1
    end = stretch.find("|", place)
    return stretch[start : end if end >= 0 else None].encode()
