"""The table of all outputs: it breaks no name and leaves out empty columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lineage_backfill.cli.options import ListOptions
from lineage_backfill.show import backfills
from lineage_backfill.show.plans import GROUPED_ABOVE
from lineage_backfill.show.text import UNKNOWN

Cell = str | Text
#: Gap between two columns, indent of what stands below a name, least width of a folded column, most
#: width of a first column that nothing stands below.
_GAP, _INDENT, _LEAST, _NARROW = 2, 4, 20, 10
#: Most rows of each kind in a long table.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table; columns that do not fit side by side stand below, and only the last is folded."""

    columns: Sequence[tuple[Text, ...]]  # each with its heading
    right: Container[int] = ()
    below: Text | None = None

    @property
    def has_rows(self) -> bool:
        """Whether there is anything below the headings."""
        return len(self.columns[0]) > 1

    @property
    def _indent(self) -> int:
        first = _widest(self.columns[0])
        return first + _GAP if first <= _NARROW else _INDENT

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the table."""
        width = options.max_width
        parts, sizes = self._parts(width), [_widest(column) for column in self.columns]
        last = parts[-1]
        room = width - sum(sizes[n] + _GAP for n in last[:-1]) - self._indent * (len(parts) > 1)
        for row in zip(*self.columns, strict=True):
            # A word that is longer than its column stands below, unbroken.
            is_long = max(map(len, row[-1].plain.split()), default=0) > room and len(last) > 1
            split = [*parts[:-1], last[:-1], last[-1:]] if is_long else parts
            for place, part in enumerate(split):
                if place == 0 or any(row[n] for n in part):
                    indent = self._indent * bool(place)
                    yield from self._lines(console, row, part, sizes, width - indent, indent)
        if self.below is not None:
            yield self.below

    def _parts(self, width: int) -> list[range]:
        """Return the columns that stand side by side: on each line as many as fit."""
        parts, begin = list[range](), 0
        for end in range(1, len(self.columns) + 1):
            indent = self._indent * bool(parts)
            if end - begin > 1 and not self._fits(range(begin, end), width - indent):
                parts.append(range(begin, end - 1))
                begin = end - 1
        return [*parts, range(begin, len(self.columns))]

    def _at(self, column: int) -> bool:
        return column in self.right

    def _fits(self, part: range, width: int) -> bool:
        """Whether the columns fit; the last one may be folded between words, if it is text."""
        sizes = [_widest(self.columns[n]) + _GAP for n in part]
        if sum(sizes) - _GAP <= width:
            return True
        is_text = part.stop == len(self.columns) and not self._at(part[-1])
        return is_text and width - sum(sizes[:-1]) >= _LEAST

    def _lines(
        self,
        console: Console,
        row: Sequence[Text],
        part: range,
        sizes: Sequence[int],
        width: int,
        indent: int,
    ) -> Iterator[Text]:
        """Yield one row of some columns, of as many lines as its longest cell."""
        room = width - sum(sizes[n] + _GAP for n in part[:-1])
        cells = [[*row[n].split("\n", allow_blank=True)] or [Text()] for n in part]
        cells[-1] = [line for one in cells[-1] for line in one.wrap(console, max(room, 1)) or [one]]
        for at in range(max(map(len, cells))):
            line = Text(" " * indent)
            for n, lines in zip(part, cells, strict=True):
                cell = lines[at].copy() if at < len(lines) else Text()
                pad = " " * (min(sizes[n], width) - cell.cell_len)
                at_right = self._at(n) and len(part) > 1
                line += Text.assemble(pad, cell) if at_right else Text.assemble(cell, pad)
                line.append(" " * _GAP * (n != part[-1]))
            line.rstrip()
            if line or at == 0:
                yield line


def table(
    *headings: Cell,
    rows: Iterable[Iterable[Cell]] = (),
    right: Container[int] = (),
    more: int = 0,
    rest: str = "; --json has all",
    listing: ListOptions | None = None,
) -> Grid:
    """Return a table in the common style, without the columns that hold nothing.

    The columns numbered in `right` are right-aligned. A last line says how many `more` rows there
    are, if any, and where the `rest` is. With `listing`, a long table shows the first rows of each
    kind, which is the first column, and how many more there are.
    """
    cells = [[Text(one) if isinstance(one, str) else one for one in row] for row in rows]
    below = Text(f"and {more:,} more{rest}", style="dim") if more > 0 else None
    if listing is not None and not listing.every and len(cells) > GROUPED_ABOVE:
        cells, below = list(_first_of_each(cells)), Text("--all lists every row.", style="dim")
    held = [
        n for n in range(len(headings)) if any(row[n].plain not in ("", UNKNOWN) for row in cells)
    ]
    shown = held or range(len(headings))
    return Grid(
        columns=[(Text(str(headings[n]), "bold"), *(row[n] for row in cells)) for n in shown],
        right=[place for place, n in enumerate(shown) if n in right],
        below=below,
    )


def _first_of_each(rows: Sequence[Sequence[Text]]) -> Iterator[list[Text]]:
    """Yield the first rows of each kind, and after them how many more there are."""
    kinds, seen = Counter(row[0].plain for row in rows), Counter[str]()
    for kind, *others in rows:
        seen[kind.plain] += 1
        if seen[kind.plain] <= _SHOWN:
            yield [kind, *others]
        elif seen[kind.plain] == kinds[kind.plain]:
            more = Text(f"and {kinds[kind.plain] - _SHOWN:,} more", style="dim")
            yield [kind, more, *(Text() for _ in others[1:])]


def mark(holds: bool | None) -> Text:
    """Return the coloured sign for true, false or unknown (None)."""
    return Text(backfills.mark(holds), style=backfills.colour(holds))


def _widest(column: Iterable[Text]) -> int:
    return max(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True))
