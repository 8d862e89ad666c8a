"""Names of the project file that nothing known bears."""

from tests.unit.planning.world import declarations


def test_a_table_can_say_that_its_name_is_expected() -> None:
    toml = '[[dataset]]\nname = "a"\nexpected = true\n[[job]]\nname = "j"\nexpected = true\n'
    found = declarations(toml)
    assert (found.datasets[0].expected, found.jobs[0].expected) == (True, True)


def test_an_unanswered_grain_states_none() -> None:
    (found,) = declarations('[[dataset]]\nname = "a"\ngrain = "?"\ncolumn = "ds"\n').datasets
    assert found.calendar is None
