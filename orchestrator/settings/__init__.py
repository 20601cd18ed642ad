"""What a user, a project or an administrator set, and where each value stands."""

from coterie.orchestrator.settings.loading import MANAGED_FILE, load_settings
from coterie.orchestrator.settings.schema import SETTINGS, Settings

__all__ = ["MANAGED_FILE", "SETTINGS", "Settings", "load_settings"]
