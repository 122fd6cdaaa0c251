"""`asterism.toml` and the environment become `Settings`; a bad reload keeps the last good ones."""

from asterism.config.live import NEEDS_RESTART, LiveSettings, Reload
from asterism.config.load import RESERVED, config_file, data_directory, load
from asterism.config.memory import ContextSettings, MemorySettings, RetentionSettings
from asterism.config.search import SearchSettings
from asterism.config.settings import (
    ChannelSettings,
    LimitSettings,
    ModelSettings,
    OutboxSettings,
    RuntimeSettings,
    Settings,
    StoreSettings,
    ToolSettings,
)
from asterism.config.telemetry import LogSettings, TelemetrySettings

__all__ = [
    "NEEDS_RESTART",
    "RESERVED",
    "ChannelSettings",
    "ContextSettings",
    "LimitSettings",
    "LiveSettings",
    "LogSettings",
    "MemorySettings",
    "ModelSettings",
    "OutboxSettings",
    "Reload",
    "RetentionSettings",
    "RuntimeSettings",
    "SearchSettings",
    "Settings",
    "StoreSettings",
    "TelemetrySettings",
    "ToolSettings",
    "config_file",
    "data_directory",
    "load",
]
