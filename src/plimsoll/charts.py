"""Pictures: Vega-Lite specs, which are plain data, drawn as PNG or SVG without a browser.

One theme serves light and dark: the ground is transparent, and every colour is readable on white and on black.
"""

from __future__ import annotations

from typing import Any, Literal

Form = Literal["png", "svg"]

INK = "#7c8794"
BLUE, ORANGE, GREEN, RED, GREY = "#3b8eea", "#e8871e", "#2fa36b", "#e5484d", "#9aa4b0"
PALE = "#86a9cf"
"""For areas. Colours are never see-through: on a transparent ground the PNG writer would make them muddy."""
FONT = "Inter, Helvetica, Arial, sans-serif"
PNG_SCALE = 2.0
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""The name of the language, not an address that is asked."""

THEME: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "gridColor": INK, "gridDash": [1, 5], "gridWidth": 0.6,
        "domainColor": INK, "tickColor": INK,
        "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal",
    },
    "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "orient": "top", "title": None},
    "title": {
        "color": INK, "subtitleColor": INK, "anchor": "start", "fontSize": 15, "subtitleFontSize": 12, "offset": 12,
    },
    "text": {"color": INK},
}  # fmt: skip


def render(spec: dict[str, Any], form: Form) -> bytes:
    """Draw a spec. What the spec says of colours and fonts goes before the theme."""
    import vl_convert  # takes a quarter of a second, so only who draws pays for it

    themed = {"$schema": SCHEMA, **spec, "config": _merged(THEME, spec.get("config", {}))}
    if form == "svg":
        return str(vl_convert.vegalite_to_svg(themed)).encode()
    return bytes(vl_convert.vegalite_to_png(themed, scale=PNG_SCALE))


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
