from coterie.agents.definitions.front_matter_fields import COLORS, color_code
from coterie.orchestrator.cli.live.agent_table import AgentTable
from coterie.orchestrator.cli.live.rows import AgentRow


def test_name_has_the_color_of_its_agent_type() -> None:
    row = AgentRow(name="scout", color="#a855f7")
    table = AgentTable.fitting([(0, row)], 80, 0.0, is_plain=False)
    for is_chosen, style in ((False, "#a855f7"), (True, "bold #a855f7")):
        line = table.line(0, row, is_chosen=is_chosen)
        assert style in [str(span.style) for span in line.spans]


def test_only_color_names_and_codes_are_colors() -> None:
    assert color_code("Purple") == COLORS["purple"]
    assert color_code("grey") == COLORS["gray"]
    assert color_code("#FF6B35") == "#ff6b35"
    for word in ("", "#fff", "#gggggg", "red on blue", "\x1b[31m"):
        assert color_code(word) is None
