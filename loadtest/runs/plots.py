"""Plots as inline SVG, all with the same time axis below each other. Colours are the style sheet's: see `report`."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

import msgspec

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 76, 16, 26, 22
PLOT = WIDTH - LEFT - RIGHT

Scale = Callable[[float], float]
Points = Sequence[tuple[float, float | None]]


class Line(msgspec.Struct, frozen=True):
    """A line of a plot: what it shows, its colour class, and its points; where there is none it is interrupted."""

    name: str
    colour: str
    points: Points


class Moment(msgspec.Struct, frozen=True):
    """Something that is marked in every plot."""

    at_s: float
    text: str


class Plots:
    """Draws plots over the same stretch of time."""

    def __init__(self, duration_s: float, moments: Sequence[Moment] = ()) -> None:
        self._duration_s = max(duration_s, 1.0)
        self._moments = moments

    def bars(self, title: str, note: str, colour: str, width_s: float, values: Sequence[float]) -> str:
        """One value for every stretch of `width_s`."""
        height, top = 84, nice_ceiling(max(values, default=0.0))
        y = _linear(top, height)
        drawn = []
        for number, value in enumerate(values):
            start_s = number * width_s
            left, right = self._x(start_s), self._x(min(start_s + width_s, self._duration_s))
            if value and right > left:
                box = _Box(left, y(value), max(0.6, right - left - 0.6), y(0) - y(value))
                drawn.append(box.draw(colour, f"{start_s:g} s: {value:,.1f}/s"))
        return self._frame(title, note, height, [(0, y(0)), (top / 2, y(top / 2)), (top, y(top))], drawn)

    def lines(self, title: str, note: str, lines: Sequence[Line], *, unit: str = "", top: float = 0.0) -> str:
        """Lines from zero up."""
        height = 130
        most = max((value for line in lines for _, value in line.points if value is not None), default=0.0)
        top = nice_ceiling(max(most, top))
        y = _linear(top, height)
        ticks = [(value, y(value)) for value in (0, top / 2, top)]
        drawn = [self._path(line, y) for line in lines]
        return self._frame(title, note, height, ticks, drawn, legend=lines, unit=unit)

    def log_lines(self, title: str, note: str, lines: Sequence[Line], unit: str) -> str:
        """Lines on a scale on which every step is ten times the last."""
        height = 170
        values = [value for line in lines for _, value in line.points if value]
        low = 10 ** math.floor(math.log10(max(0.1, min(values, default=1.0))))
        high = 10 ** math.ceil(math.log10(max(low * 10, max(values, default=10.0))))
        y = _logarithmic(low, high, height)
        steps = [low * 10**step for step in range(round(math.log10(high / low)) + 1)]
        drawn = [self._path(line, y) for line in lines]
        return self._frame(title, note, height, [(step, y(step)) for step in steps], drawn, legend=lines, unit=unit)

    def heat(
        self, title: str, note: str, width_s: float, columns: Sequence[Sequence[int]], bounds: Sequence[float]
    ) -> str:
        """How often each latency occurred in every stretch of time: the darker the more of that stretch's calls."""
        used = [row for row in range(len(bounds) + 1) if any(column[row] for column in columns)]
        first, last = (min(used), max(used)) if used else (0, 0)
        rows = last - first + 1
        row_height = max(8.0, min(14.0, 150 / rows))
        height = rows * row_height
        drawn = []
        for number, column in enumerate(columns):
            most = max(column) or 1
            left, right = self._x(number * width_s), self._x(min((number + 1) * width_s, self._duration_s))
            for row in range(first, last + 1):
                if column[row] and right > left:
                    says = f"{number * width_s:g} s, {_bucket(row, bounds)}: {column[row]:,} calls"
                    top = TOP + height - (row - first + 1) * row_height
                    box = _Box(left, top, right - left + 0.2, row_height + 0.2)
                    drawn.append(box.draw("heat", says, opacity=0.12 + 0.88 * column[row] / most))
        every = max(1, rows // 6)
        ticks = [
            (bounds[row], TOP + height - (row - first + 1) * row_height)
            for row in range(first, min(last + 1, len(bounds)), every)
        ]
        return self._frame(title, note, height, ticks, drawn, unit="ms")

    def areas(self, title: str, note: str, areas: Sequence[Line], top: float) -> str:
        """Areas on top of each other, the first at the bottom."""
        height = 150
        y = _linear(top, height)
        moments = [at_s for at_s, _ in areas[0].points]
        below = [0.0] * len(moments)
        drawn = []
        for area in areas:
            above = [base + (value or 0.0) for base, (_, value) in zip(below, area.points, strict=True)]
            edge = [f"{self._x(at):.1f},{y(value):.1f}" for at, value in zip(moments, above, strict=True)]
            back = [f"{self._x(at):.1f},{y(value):.1f}" for at, value in zip(moments, below, strict=True)]
            drawn.append(f'<polygon class="{area.colour}" points="{" ".join([*edge, *reversed(back)])}"/>')
            below = above
        return self._frame(title, note, height, [(value, y(value)) for value in (0, top / 2, top)], drawn, legend=areas)

    def strip(self, title: str, note: str, colours: dict[str, str], points: Sequence[tuple[float, str]]) -> str:
        """Which of some states it was in, from each point to the next."""
        height, drawn = 26, []
        changes = [point for number, point in enumerate(points) if not number or point[1] != points[number - 1][1]]
        ends = [at_s for at_s, _ in changes[1:]] + [self._duration_s]
        for (at_s, state), end_s in zip(changes, ends, strict=True):
            if state and end_s > at_s:
                left, right = self._x(at_s), self._x(end_s)
                box = _Box(left, TOP, right - left + 0.2, height)
                drawn.append(box.draw(colours.get(state, "other"), f"{at_s:.1f} s: {state}"))
        legend = [Line(state, colour, ()) for state, colour in colours.items()]
        return self._frame(title, note, height, [], drawn, legend=legend)

    def _x(self, at_s: float) -> float:
        return LEFT + PLOT * max(0.0, min(1.0, at_s / self._duration_s))

    def _path(self, line: Line, y: Scale) -> str:
        parts, pen = [], "M"
        for at_s, value in line.points:
            if value is None:
                pen = "M"
                continue
            # Its round end makes a dot of a point that has no neighbours.
            parts.append(f"{pen}{self._x(at_s):.1f} {y(value):.1f}" + ("h0" if pen == "M" else ""))
            pen = "L"
        return f'<path class="line {line.colour}" d="{" ".join(parts)}"/>'

    def _frame(
        self,
        title: str,
        note: str,
        height: float,
        ticks: Iterable[tuple[float, float]],
        drawn: Iterable[str],
        *,
        legend: Sequence[Line] = (),
        unit: str = "",
    ) -> str:
        bottom = TOP + height
        parts = [f'<text class="title" x="{LEFT}" y="15">{escape(title)}</text>']
        parts.append(f'<text class="note" x="{WIDTH - RIGHT}" y="15" text-anchor="end">{escape(note)}</text>')
        at = LEFT + 8.2 * len(title) + 20
        for line in (each for each in legend if each.name):
            parts.append(f'<rect class="{line.colour}" x="{at:.0f}" y="6" width="10" height="10" rx="2"/>')
            parts.append(f'<text class="key" x="{at + 14:.0f}" y="15">{escape(line.name)}</text>')
            at += 7.0 * len(line.name) + 32
        for value, y in ticks:
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_say(value)}{_unit(unit)}</text>'
            )
        parts += drawn
        parts += self._time_axis(bottom)
        for moment in self._moments:
            x = self._x(moment.at_s)
            parts.append(
                f'<line class="moment" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom:.1f}">'
                f"<title>{moment.at_s:.1f} s: {escape(moment.text)}</title></line>"
            )
        box = f'viewBox="0 0 {WIDTH} {bottom + BOTTOM:.0f}"'
        return f'<svg {box} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'

    def _time_axis(self, bottom: float) -> Iterable[str]:
        step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300) if self._duration_s / step <= 12), 600)
        for number in range(int(self._duration_s / step) + 1):
            x = self._x(number * step)
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:.1f}" y2="{bottom + 4:.1f}"/>'
            text = f"{number * step} s"
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{text}</text>'


class _Box(msgspec.Struct, frozen=True):
    left: float
    top: float
    width: float
    height: float

    def draw(self, colour: str, says: str, opacity: float = 1.0) -> str:
        """A rectangle that says something when pointed at."""
        place = f'x="{self.left:.1f}" y="{self.top:.1f}" width="{self.width:.1f}" height="{self.height:.1f}"'
        return f'<rect class="{colour}" {place} opacity="{opacity:.2f}"><title>{escape(says)}</title></rect>'


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10 times a power of ten that is not below the value."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * 0.9999))


def _linear(top: float, height: float) -> Scale:
    return lambda value: TOP + height * (1 - value / top)


def _logarithmic(low: float, high: float, height: float) -> Scale:
    span = math.log10(high / low)
    return lambda value: TOP + height * (1 - math.log10(max(value, low) / low) / span)


def _bucket(row: int, bounds: Sequence[float]) -> str:
    return f"up to {bounds[row]:g} ms" if row < len(bounds) else f"over {bounds[-1]:g} ms"


def _say(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""
