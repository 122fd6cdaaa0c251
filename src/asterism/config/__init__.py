"""`asterism.toml` and the environment become `Settings`; a bad reload keeps the last good ones."""

from asterism.config.load import (
    NEEDS_RESTART,
    RESERVED,
    LiveSettings,
    Reload,
    config_file,
    load,
)
from asterism.config.settings import (
    ApiSettings,
    ChannelSettings,
    ContextSettings,
    LimitSettings,
    LogSettings,
    MemorySettings,
    ModelSettings,
    OutboxSettings,
    RetentionSettings,
    RuntimeSettings,
    SearchSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
    ToolSettings,
)
from asterism.private import data_directory

__all__ = [
    "NEEDS_RESTART",
    "RESERVED",
    "ApiSettings",
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
