"""The settings in force as rows of a table; pure."""

from combee.dashboard.views.rows import Row
from combee.dashboard.views.wording import matching
from combee.process.settings.loading import Settings, in_force


def setting_rows(settings: Settings, text: str = "", *, only_set: bool = False) -> list[Row]:
    """Return the settings that have all words of a text, on request only those that are no default."""
    matches = matching(text)
    return [
        {
            "name": f"COMBEE_{setting.name.upper()}",
            "value": setting.value,
            "origin": setting.origin,
            "about": setting.about,
        }
        for setting in in_force(settings)
        if not (only_set and setting.origin == "default")
        and matches(f"combee_{setting.name} {setting.value} {setting.about}".casefold())
    ]
