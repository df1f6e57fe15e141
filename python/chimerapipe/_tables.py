"""HTML tables for notebooks."""

import html
from collections.abc import Mapping, Sequence


def html_table(rows: Sequence[Mapping[str, object]], caption: str = "") -> str:
    """The first row names the columns. Floats are rounded to four digits."""
    if not rows:
        return f"<p>{html.escape(caption)}</p>"
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = "".join(f"<tr>{''.join(_cell(row.get(name)) for name in rows[0])}</tr>" for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{heads}</tr>{lines}</table>"


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    align = "right" if isinstance(value, int | float) else "left"
    return f'<td style="text-align:{align}">{html.escape(text)}</td>'
