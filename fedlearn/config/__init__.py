"""The one schema of a run's settings: for its file, its environment variables and its command line flags."""

from fedlearn.config.flags import add_config_flags
from fedlearn.config.run_config import (
    LAST_STEP,
    OptimizerSettings,
    RunConfig,
    RunSettings,
    journal_bytes_kept,
)
from fedlearn.config.schema import OPTIONS, Schema
from fedlearn.config.server_settings import ServerSettings, VolunteerSettings
from fedlearn.config.setting import ConfigError, setting
from fedlearn.config.sources import (
    LARGEST_OF,
    SourceFile,
    flag_of,
    given_settings,
    load_config,
    notes_on,
    resume_config,
    setting_of,
    started_anew,
    task_of,
    to_json,
)
from fedlearn.config.strategy_settings import MAX_MEMBERS, MAX_POPULATION, StrategySettings

__all__ = [
    "LARGEST_OF",
    "LAST_STEP",
    "MAX_MEMBERS",
    "MAX_POPULATION",
    "OPTIONS",
    "ConfigError",
    "OptimizerSettings",
    "RunConfig",
    "RunSettings",
    "Schema",
    "ServerSettings",
    "SourceFile",
    "StrategySettings",
    "VolunteerSettings",
    "add_config_flags",
    "flag_of",
    "given_settings",
    "journal_bytes_kept",
    "load_config",
    "notes_on",
    "resume_config",
    "setting",
    "setting_of",
    "started_anew",
    "task_of",
    "to_json",
]
