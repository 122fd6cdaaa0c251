"""Configuration: sources, errors that lead to the line, and reload."""

import asyncio
import json
import os
import re
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.config import (
    LimitSettings,
    LiveSettings,
    ModelSettings,
    Reload,
    Settings,
    config_file,
    data_directory,
    load,
    vendors,
)
from asterism.config.parse import Key, key_lines
from asterism.errors import ConfigError
from asterism.types.agents import Limits


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "asterism.toml"


def problem(file: Path, content: str | bytes = b"", environ: dict[str, str] | None = None) -> str:
    """What loading this file complains about."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as caught:
        load(file.parent, None, environ or {})
    return caught.value.message


# Sources


def test_defaults_without_any_file(tmp_path: Path) -> None:
    settings = load(tmp_path / "not" / "there", None, {})
    assert settings == Settings.model_validate({}, context={})
    assert settings.constellation == "home"
    assert settings.store.url is None
    assert asdict(Limits()) == settings.limits.model_dump()
    assert set(LimitSettings.model_fields) == set(asdict(Limits()))


def test_later_sources_win_key_by_key(file: Path) -> None:
    file.write_text("[limits]\nsteps = 1\ncalls = 1\ntokens = 1\n")
    environ = {"ASTERISM_LIMITS__CALLS": "2", "ASTERISM_LIMITS__TOKENS": "2"}
    limits = load(file.parent, None, environ, {"limits.tokens": 3}).limits
    assert (limits.steps, limits.calls, limits.tokens) == (1, 2, 3)
    assert limits.seconds == Limits().seconds


def test_overrides_may_be_tables_and_none_is_not_given(tmp_path: Path) -> None:
    overrides = {"limits": {"steps": 3}, "limits.calls": 4, "model": None}
    settings = load(tmp_path, None, {"ASTERISM_MODEL": "a:b"}, overrides)
    assert (settings.limits.steps, settings.limits.calls) == (3, 4)
    assert settings.model == "a:b"
    assert overrides["limits"] == {"steps": 3}


def test_environment_is_read_as_the_setting_needs_it(tmp_path: Path) -> None:
    environ = {
        "ASTERISM_CONSTELLATION": "12",
        "ASTERISM_LOG__LEVEL": "debug",
        "ASTERISM_RUNTIME__HEARTBEAT": "0.5",
        "ASTERISM_TOOLS__MODULES": '["house.tools"]',
        "ASTERISM_LIMITS": "{ steps = 7 }",
        "ASTERISM_MODELS__LOCAL__KEY": "123",
        "ASTERISM_MODELS__LOCAL__OPTIONS__TEMPERATURE": "0.2",
        "ASTERISM_CHANNELS__HOOK__TYPE": "webhook",
        "ASTERISM_CHANNELS__HOOK__PORT": "8080",
        "ASTERISM_CHANNELS__HOOK__PATH": "/in",
        "ASTERISM_STORE__URL": "",
        "ASTERISM_DATA": "elsewhere",
        "ASTERISM_TORTURE": "1",
        "PATH": "/bin",
    }
    settings = load(tmp_path, None, environ)
    assert settings.constellation == "12"
    assert settings.log.level == "debug"
    assert settings.runtime.heartbeat == 0.5
    assert settings.tools.modules == ("house.tools",)
    assert settings.limits.steps == 7
    key = settings.models["local"].key
    assert key is not None
    assert key.get_secret_value() == "123"
    assert settings.models["local"].options == {"temperature": 0.2}
    assert settings.channels["hook"].options == {"port": 8080, "path": "/in"}
    assert settings.store.url is None


def test_byte_order_mark_and_windows_line_ends(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfconstellation = "den"\r\n[limits]\r\nsteps = 2\r\n')
    settings = load(file.parent, None, {})
    assert (settings.constellation, settings.limits.steps) == ("den", 2)


def test_python_files_are_found_beside_the_configuration(file: Path) -> None:
    file.write_text('tools.modules = ["house.tools", "mine/tools.py", "/opt/tools.py"]')
    modules = load(Path("elsewhere"), file, {}).tools.modules
    assert modules == ("house.tools", str(file.parent / "mine/tools.py"), "/opt/tools.py")


@pytest.mark.parametrize("url", ["postgresql://u:p@h/db", "postgres://h/db?sslmode=require"])
def test_postgres_addresses(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, None, {"ASTERISM_STORE__URL": url}).store.url == url


def test_default_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def default(environ: dict[str, str], **overrides: object) -> str:
        return load(tmp_path, None, environ, overrides).default_model

    assert default({}) == "demo:guide"
    assert default({"OPENAI_API_KEY": ""}) == "demo:guide"
    assert default({"OPENAI_API_KEY": "k"}) == "openai:gpt-4.1-mini"
    assert default({}, models={"openai": {"key": "k"}}) == "openai:gpt-4.1-mini"
    assert default({"K": "k"}, models={"openai": {"key_env": "K"}}) == "openai:gpt-4.1-mini"
    assert default({"OPENAI_API_KEY": "k"}, model="local:llama3:8b") == "local:llama3:8b"
    both = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k"}
    assert default(both) == "anthropic:claude-haiku-4-5"
    assert default({"GROQ_API_KEY": "k"}) == "groq:openai/gpt-oss-120b"
    for installed in (False, True):
        monkeypatch.setattr(vendors.Vendor, "usable", installed)
        proposed = "google:gemini-flash-latest" if installed else "demo:guide"
        assert default({"GEMINI_API_KEY": "k"}) == proposed


def put_weights(shelf: Path, name: str, *, own: bool = False, size: int = 8) -> None:
    """Put verified weights on a shelf, as a pull leaves them."""
    path = shelf / f"{name}.gguf"
    path.write_bytes(b"GGUF" + bytes(size - 4))
    stat = path.stat()
    note = {"name": name, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "own": own}
    (shelf / f"{name}.gguf.json").write_text(json.dumps(note))


def test_weights_on_this_machine_are_the_default_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendors, "can_embed", lambda: True)
    shelf = tmp_path / "models"
    environ = {"ASTERISM_MODELS": str(shelf)}

    def default(**more: str) -> str:
        return load(tmp_path, None, environ | more).default_model

    assert default() == "demo:guide"
    shelf.mkdir()
    put_weights(shelf, "mine", own=True, size=100)
    assert default() == "embedded:mine"
    put_weights(shelf, "small")
    assert default() == "embedded:small"
    put_weights(shelf, "large", size=20)
    assert default() == "embedded:large"
    (shelf / "large.gguf").write_bytes(b"changed since it was verified")
    (shelf / "small.gguf.json").write_text("not JSON")
    assert default() == "embedded:mine"
    assert default(OPENAI_API_KEY="k") == "openai:gpt-4.1-mini"
    assert load(tmp_path, None, {}).default_model == "demo:guide"
    monkeypatch.setattr(vendors, "can_embed", lambda: False)
    assert default() == "demo:guide"


def test_known_vendors_need_no_table() -> None:
    known = {"demo", "openai", "anthropic"}
    settings = Settings.model_validate(
        {"models": {"groq": {"timeout": 5.0}, "vllm": {"base_url": "http://gpu:8000/v1"}}},
        context={"GROQ_API_KEY": "k"},
    )
    assert settings.vendor("ollama").base_url == "http://127.0.0.1:11434/v1"
    assert settings.vendor("ollama").key_env is None
    assert settings.vendor("groq").base_url == "https://api.groq.com/openai/v1"
    assert settings.vendor("groq").key_env == "GROQ_API_KEY"
    assert settings.vendor("groq").timeout == 5.0
    assert settings.vendor("vllm").base_url == "http://gpu:8000/v1"
    assert settings.vendor("openai") == settings.vendor("nobody") == ModelSettings()
    assert {settings.api_of(name, known) for name in ("ollama", "groq", "xai")} == {"openai"}
    assert settings.api_of("google", known) == "google"
    assert settings.api_of("nobody", known) == "nobody"


def test_settings_without_load_read_the_process_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert Settings().default_model == "openai:gpt-4.1-mini"


def test_wire_format_of_a_vendor() -> None:
    settings = Settings(
        models={
            "local": ModelSettings(),
            "openai": ModelSettings(),
            "other": ModelSettings(api="anthropic"),
        }
    )
    known = {"demo", "openai"}
    assert settings.api_of("local", known) == "openai"
    assert settings.api_of("openai", known) == "openai"
    assert settings.api_of("other", known) == "anthropic"
    assert settings.api_of("demo", known) == "demo"
    assert settings.api_of("unheard-of", known) == "unheard-of"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().limits.steps = 3


# Places


def test_data_directory(tmp_path: Path) -> None:
    environ = {"ASTERISM_DATA": str(tmp_path / "env")}
    assert data_directory(tmp_path / "flag", environ) == tmp_path / "flag"
    assert data_directory(None, environ) == tmp_path / "env"
    usual = data_directory(None, {"ASTERISM_DATA": ""})
    assert usual.is_absolute()
    assert usual.name == "asterism"


def test_config_file(tmp_path: Path) -> None:
    environ = {"ASTERISM_CONFIG": str(tmp_path / "env.toml")}
    assert config_file(tmp_path, tmp_path / "flag.toml", environ) == tmp_path / "flag.toml"
    assert config_file(tmp_path, None, environ) == tmp_path / "env.toml"
    assert config_file(tmp_path, None, {}) == tmp_path / "asterism.toml"


# Errors


BAD_VALUES = {
    'cassette.file = ""': 'cassette.file is ""; a file is needed, such as "demo.jsonl"',
    'cassette.mode = "loud"': 'cassette.mode is "loud"; "play" or "record" is needed',
    "cassette.speed = -1": "cassette.speed is -1; a number from 0 (no pauses) to 1,000 is needed",
    'cassette.loose = "yes"': 'cassette.loose is "yes"; true or false is needed',
    "models.x.requests_per_minute = 0": "models.x.requests_per_minute is 0; a whole number from",
    "models.x.tokens_per_minute = 1.5": "models.x.tokens_per_minute is 1.5; a whole number",
    'search.encoder = "bert"': 'search.encoder is "bert"; "minilm", "none" or a model as',
    'trust.reader = "guess"': 'trust.reader is "guess"; "auto", "literal" or a model as',
    'search.encoder = "a: b"': 'search.encoder is "a: b"; "minilm", "none" or a model as',
    "search.threads = 0": "search.threads is 0; a whole number from 1 to 256 is needed",
    'log.format = "xml"': 'log.format is "xml"; ',
    'telemetry.endpoint = "here"': 'telemetry.endpoint is "here"; ',
    "telemetry.sample = 2": "telemetry.sample is 2; ",
    "telemetry.content = 1": "telemetry.content is 1; ",
    'model = "gpt"': 'model is "gpt"; a model as vendor:name is needed, such as "openai:',
    "model = 4": "model is 4; a model as vendor:name",
    'constellation = ""': 'constellation is ""; a name of 1 to 100 characters',
    'constellation = "a\\nb"': 'constellation is "a\\nb"; a name',
    "store.url = 1": "store.url is a number; the address of a PostgreSQL database",
    'store.url = "mysql://u:hunter2@h/db"': 'store.url begins with "mysql:"; "postgresql://',
    'store.url = "host=h password=hunter2"': 'store.url is not an address; "postgresql://',
    "store = 1": "store is a number; a table is needed, such as [store].",
    "models = []": "models is a list; a table is needed, such as [models].",
    'models.x = "hunter2"': "models.x is text; a table is needed, such as [models.x].",
    'models.x.api = ""': 'models.x.api is ""; the name of a wire format',
    'models.x.base_url = "ftp://h"': 'models.x.base_url is "ftp://h"; an http or https address',
    'models.x.base_url = "ftp://u:hunter2@h"': 'models.x.base_url is "ftp://…@h"; an http',
    'models.x.key = ""': "models.x.key is empty; the vendor's key in quotes is needed.",
    'models.x.key = ["hunter2"]': "models.x.key is a list; the vendor's key in quotes is needed.",
    'models.x.key_env = "sk-hunter2"': "models.x.key_env is text (not shown); the name of an",
    "models.x.key_env = true": "models.x.key_env is a truth value; the name of an environment",
    "models.x.timeout = 0": "models.x.timeout is 0; a number of seconds above 0",
    "models.x.retries = -1": "models.x.retries is -1; a whole number from 0 to 100",
    "models.x.retries = 1.5": "models.x.retries is 1.5; a whole number from 0 to 100",
    "models.x.options = 1": "models.x.options is a number; a table is needed",
    "limits.steps = 0": "limits.steps is 0; a whole number from 1 to 1,000,000,000 is needed",
    "limits.steps = true": "limits.steps is true; a whole number",
    'limits.steps = "24"': 'limits.steps is "24"; a whole number',
    "limits.steps = {}": "limits.steps is a table; a whole number",
    "limits.steps = 1979-05-27": "limits.steps is a date or time; a whole number",
    "limits.seconds = inf": "limits.seconds is inf; a number of seconds",
    "limits.seconds = nan": "limits.seconds is nan; a number of seconds",
    "limits.tokens = 1000000001": "limits.tokens is 1000000001; a whole number from 1 to",
    f"limits.tokens = 0x{'f' * 5000}": "limits.tokens is a number of more than 64 bits;",
    "limits.calls = -1": "limits.calls is -1; a whole number",
    'context.tokens = "all"': 'context.tokens is "all"; a whole number',
    'context.strategy = "forget"': 'context.strategy is "forget"; "truncate", "summary"',
    "context.keep_recent = 0": "context.keep_recent is 0; a whole number",
    "context.keep_important = 1.5": "context.keep_important is 1.5; a whole number",
    "context.decay_hours = 0": "context.decay_hours is 0; a number of hours above 0",
    "pipeline.processors = 1": "pipeline.processors is 1; a list of names of plugins",
    "pipeline.sections = 1": "pipeline.sections is 1; a list of names of plugins",
    "pipeline.evaluators = 1": "pipeline.evaluators is 1; a list of names of plugins",
    "pipeline.retries = -1": "pipeline.retries is -1; a whole number from 0 to 100",
    'pipeline.seconds = "long"': 'pipeline.seconds is "long"; a number of seconds',
    "pipeline.options = 1": "pipeline.options is a number; a table",
    "agents.x.pipeline.processors = 1": "agents.x.pipeline.processors is 1; a list of names",
    "agents.x.pipeline.sections = 1": "agents.x.pipeline.sections is 1; a list of names",
    "agents.x.pipeline.evaluators = 1": "agents.x.pipeline.evaluators is 1; a list of names",
    "agents.x.pipeline.retries = 101": "agents.x.pipeline.retries is 101; a whole number",
    "agents.x.pipeline.options = 1": "agents.x.pipeline.options is a number; a table",
    "pipeline.options.recall.hits = 0": "pipeline.options.recall.hits is 0;",
    "pipeline.options.recall.tokens = 5": "pipeline.options.recall.tokens is 5;",
    "pipeline.options.recall.threshold = 2": "pipeline.options.recall.threshold is 2;",
    "pipeline.options.recall.domains = 1": "pipeline.options.recall.domains is 1;",
    "pipeline.options.remember.rules = 1": "pipeline.options.remember.rules is 1;",
    "pipeline.options.remember.model = 1": "pipeline.options.remember.model is 1;",
    "pipeline.options.remember.idle_seconds = -1": "pipeline.options.remember.idle_seconds is -1;",
    "agents.x.pipeline.options.remember.rules = 1": (
        "agents.x.pipeline.options.remember.rules is 1;"
    ),
    "agents.x.pipeline.options.remember.model = 1": (
        "agents.x.pipeline.options.remember.model is 1;"
    ),
    "agents.x.pipeline.options.remember.idle_seconds = -1": (
        "agents.x.pipeline.options.remember.idle_seconds is -1;"
    ),
    "agents.x.pipeline.options.recall.hits = 0": "agents.x.pipeline.options.recall.hits is 0;",
    "agents.x.pipeline.options.recall.tokens = 5": "agents.x.pipeline.options.recall.tokens is 5;",
    "agents.x.pipeline.options.recall.threshold = 2": (
        "agents.x.pipeline.options.recall.threshold is 2;"
    ),
    "agents.x.pipeline.options.recall.domains = 1": (
        "agents.x.pipeline.options.recall.domains is 1;"
    ),
    'memory.trusted = ["everybody"]': 'memory.trusted[0] is "everybody"; a list such as ["tool"]',
    'memory.trusted = "tool"': 'memory.trusted is "tool"; a list such as ["tool"]',
    'memory.judge = "me"': 'memory.judge is "me"; "rules" or "model"',
    'retention.x = {kind = "dreams", days = 1}': 'retention.x.kind is "dreams"; "messages",',
    'retention.x = {kind = "messages", days = 0}': "retention.x.days is 0; a number of days",
    'retention.x = {kind = "blobs", days = 1, agent = ""}': 'retention.x.agent is ""; the name of',
    'retention.x = {kind = "blobs", days = 1, tag = 1}': "retention.x.tag is 1; a tag of passages",
    'retention.x = {kind = "blobs", days = 1, trust = 1}': 'retention.x.trust is 1; "owner",',
    'retention.x = {kind = "blobs", days = 1, tag = "a"}': "retention.x has a tag, but blobs",
    'retention.x = {kind = "charges", days = 1, trust = "web"}': "retention.x has trust, which",
    'retention.x = {kind = "blobs", days = 1, agent = "a"}': "retention.x has an agent, but",
    "runtime.turns = 0": "runtime.turns is 0; a whole number",
    "runtime.crashes = 0": "runtime.crashes is 0; a whole number",
    "agent_messages.cooldown = -1": "agent_messages.cooldown is -1; a number of seconds from 0",
    'agent_messages.on_cooldown = "no"': 'agent_messages.on_cooldown is "no"; "refuse" or "delay"',
    "agent_messages.max_messages = 0": "agent_messages.max_messages is 0; a whole number",
    "agent_messages.max_depth = 0": "agent_messages.max_depth is 0; a whole number",
    "agent_messages.max_cost = -1": "agent_messages.max_cost is -1; an amount in US dollars",
    "api.requests_per_minute = 0": "api.requests_per_minute is 0; a whole number",
    "api.requests_at_once = 0": "api.requests_at_once is 0; a whole number",
    'api.host = "a b"': 'api.host is "a b"; an address or a name of this machine',
    "api.port = 70000": "api.port is 70000; a whole number from 0 to 65,535",
    "api.background = 1": "api.background is 1; true or false is needed",
    "api.tls_cert = 1": "api.tls_cert is 1; the path of a PEM file",
    "api.tls_key = 1": "api.tls_key is 1; the path of a PEM file",
    "api.behind_proxy = 1": "api.behind_proxy is 1; true or false is needed",
    "api.trusted_proxies = 5": "api.trusted_proxies is 5; a list of addresses",
    "api.drain = -1": "api.drain is -1; a number of seconds from 0 to 300",
    "alerts.every = 0": "alerts.every is 0; a number of seconds from 1 to 86,400",
    "alerts.channel = 1": "alerts.channel is 1; the name of a channel",
    "alerts.to = 1": "alerts.to is 1; where in that channel",
    "alerts.budget = 0": "alerts.budget is 0; a percentage above 0",
    'alerts.approval_age = "soon"': 'alerts.approval_age is "soon"; a duration is needed',
    "alerts.disk_free = 101": "alerts.disk_free is 101; a percentage from 0 to 100",
    "quotas.agents = 0": "quotas.agents is 0; a whole number",
    "quotas.waiting_per_person = 0": "quotas.waiting_per_person is 0; a whole number",
    "quotas.waiting_per_token = 0": "quotas.waiting_per_token is 0; a whole number",
    "api.hosts = 5": "api.hosts is 5; a list of names",
    "api.origins = 5": "api.origins is 5; a list of origins",
    'channels.x = {type = "webhook", events = ["begun"]}': "channels.x.events",
    'channels.x = {type = "webhook", agents = 5}': "channels.x.agents is 5; a list of names",
    'channels.x = {type = "webhook", target = 5}': "channels.x.target is 5; the name of an agent",
    'channels.x = {type = "webhook", rooms = 5}': "channels.x.rooms",
    'runtime.heartbeat = "2s"': 'runtime.heartbeat is "2s"; a number of seconds',
    "runtime.stalled_after = -6": "runtime.stalled_after is -6; a number of seconds",
    "runtime.heartbeat = 10": "runtime.stalled_after is 6.0 with a heartbeat of 10.0; at least",
    "outbox.attempts = 0": "outbox.attempts is 0; a whole number",
    "outbox.first_delay = 0": "outbox.first_delay is 0; a number of seconds",
    "outbox.longest_delay = 0.5": "outbox.longest_delay is 0.5 with a first_delay of 1.0; at",
    "outbox.timeout = []": "outbox.timeout is a list; a number of seconds",
    "channels.x = {}": "channels.x.type is missing; the name of a channel's plugin is needed, such",
    'channels.x.type = ""': 'channels.x.type is ""; the name of a channel\'s plugin',
    "channels.x.type = 1": "channels.x.type is 1; the name of a channel's plugin",
    'channels."a b" = 1': 'channels."a b" is a number; a table is needed, such as [channels.',
    'tools.modules = "a"': 'tools.modules is "a"; a list of modules and .py files',
    'tools.modules = ["a", "b c"]': 'tools.modules[1] is "b c"; a list of modules and .py files',
    "contacts.again = 3": "contacts.again is 3; a duration is needed, such as",
    'contacts.expire = "soon"': 'contacts.expire is "soon"; a duration is needed, such as "4h"',
    "contacts.escalation = 3": "contacts.escalation is 3; a list of tables, each an [[escalation]]",
    'secrets.keeper = "vault"': 'secrets.keeper is "vault"; "file", "keyring" or "env" is needed',
    "secrets.key_file = 3": "secrets.key_file is 3; the path of a file is needed, such as",
    "backups.directory = 3": "backups.directory is 3; the path of a directory is needed, such as",
    'backups.every = "soon"': 'backups.every is "soon"; a duration of at least 1 minute is needed',
    "backups.keep = 0": "backups.keep is 0; a whole number from 1 to 10,000 is needed, such as 7",
    'backups.passphrase = "hunter2"': 'backups.passphrase is text (not shown); "secret:NAME" or at',
    "budget.day = -1": "budget.day is -1; an amount in US dollars is needed, such as 5.0",
    'budget.month = "5"': 'budget.month is "5"; an amount in US dollars is needed, such as 50.0',
    "budget.warn_at = 80": "budget.warn_at is 80; a part of the cap above 0 and up to 1 is needed",
    "budget.max_output = 0": "budget.max_output is 0; a whole number from 1 to",
    'timezone = "Mars"': 'timezone is "Mars"; the name of a time zone is needed, such as "Europe/',
    'budget.timezone = "Mars"': 'budget.timezone is "Mars"; the name of a time zone is needed',
    "budget.each_agent.day = nan": "budget.each_agent.day is nan; an amount in US dollars",
    "budget.each_agent.month = true": "budget.each_agent.month is true; an amount in US dollars",
    "budget.each_person.day = []": "budget.each_person.day is a list; an amount in US dollars",
    "budget.each_person.month = 1e9": "budget.each_person.month is 1000000000.0; an amount in US",
    "budget.agents.aria = 3": "budget.agents.aria is a number; a table is needed, such as",
    "prices.x = { input = -1, output = 1 }": "prices.x.input is -1; an amount in US dollars from 0",
    "prices.x = { input = 1, output = -1 }": "prices.x.output is -1; an amount in US dollars from",
    "prices.x = { input = 1, output = 1, cached = -1 }": "prices.x.cached is -1; an amount in US",
    "prices.x = { input = 1, output = 1, written = -1 }": "prices.x.written is -1; an amount in",
    "prices.x = { input = 1, output = 1, request = -1 }": "prices.x.request is -1; an amount in",
    "prices.x = { input = 1, output = 1, image = -1 }": "prices.x.image is -1; an amount in US",
    "prices.x = { input = 1, output = 1, image_tokens = 0 }": "prices.x.image_tokens is 0; a whole",
    "prices.x = { input = 1, output = 1, long = 1 }": "prices.x.long is a number; a table is",
    "prices.x = { output = 1 }": "prices.x.input is missing; an amount in US dollars",
    'log.level = "loud"': 'log.level is "loud"; one of "debug", "info", "warning" and "error" is',
    "log.level = 3": "log.level is 3; one of",
    "authorizations.policy = 1": "authorizations.policy is 1; a list of tables, each a [[policy]]",
    "mcp.x.command = 1": "mcp.x.command is 1; a program is needed, such as",
    "mcp.x.args = 1": "mcp.x.args is 1; a list of texts, such as",
    "mcp.x.cwd = 1": "mcp.x.cwd is 1; a directory is needed",
    "mcp.x.url = 1": "mcp.x.url is a number; an http or https address is needed",
    "mcp.x.oauth.client_id = 1": "mcp.x.oauth.client_id is 1; the id that the server's owner",
    "mcp.x.oauth.client_secret = 1": "mcp.x.oauth.client_secret is a number; the name of a stored",
    "mcp.x.oauth.scope = 1": "mcp.x.oauth.scope is 1; scopes, with spaces between",
    "mcp.x.oauth.metadata_url = 1": "mcp.x.oauth.metadata_url is 1; an https address with a path",
    "mcp.x.oauth.callback_port = -1": "mcp.x.oauth.callback_port is -1; a port from 1 to 65535",
    "mcp.x.enabled = 1": "mcp.x.enabled is 1; true or false is needed",
    'mcp.x.protocol = "2024"': 'mcp.x.protocol is "2024"; "auto", "2025-11-25" or "2026-07-28"',
    'mcp.x.prefix = "a b"': 'mcp.x.prefix is "a b"; up to 32 of a-z, A-Z, 0-9, _ and -',
    "mcp.x.allow = 1": "mcp.x.allow is 1; a list of names with wildcards",
    "mcp.x.deny = 1": "mcp.x.deny is 1; a list of names with wildcards",
    "mcp.x.ask = 1": "mcp.x.ask is 1; true or false is needed",
    'mcp.x.trust_annotations = "yes"': 'mcp.x.trust_annotations is "yes"; true or false is needed',
    'mcp.x.trust = "owner"': 'mcp.x.trust is "owner"; "tool", "document" or "web" is needed',
    'mcp.x.audience = "all"': 'mcp.x.audience is "all"; who may see it: "owner", "public"',
    'mcp.x.tools.y.audience = "all"': 'mcp.x.tools.y.audience is "all"; who may see it:',
    "mcp.x.roots = 1": "mcp.x.roots is 1; a list of directories",
    "mcp.x.timeout = 0": "mcp.x.timeout is 0; a number of seconds above 0 and up to 86,400",
    "mcp.x.connect_timeout = 0": "mcp.x.connect_timeout is 0; a number of seconds above 0",
    "mcp.x.refresh = 0": "mcp.x.refresh is 0; a number of seconds above 0",
    'web.allow = ["nas"]': 'web.allow[0] is "nas"; a list of hosts with their ports',
    'web.allow = "nas:80"': 'web.allow is "nas:80"; a list of hosts with their ports',
    'web.search = "yahoo"': 'web.search is "yahoo"; "none", "searxng", "brave", "kagi" or "json"',
    'web.search_url = "here"': 'web.search_url is "here"; an http or https address is needed',
    "web.search_key = 1": "web.search_key is a number; the engine's key in quotes is needed",
    "web.search_key_env = 1": "web.search_key_env is a number; the name of an environment variable",
    'sandbox.kind = "none"': 'sandbox.kind is "none"; "auto", "bubblewrap", "namespaces" or',
    "sandbox.allow_unsandboxed = true": 'sandbox.allow_unsandboxed is true; the sentence "I know',
    'sandbox.network = "no"': 'sandbox.network is "no"; true or false is needed',
    "sandbox.memory_mb = 1": "sandbox.memory_mb is 1; a whole number from 64 to 1,000,000",
    "sandbox.cpu_seconds = 0": "sandbox.cpu_seconds is 0; a whole number from 1 to 86,400",
    "sandbox.processes = 1": "sandbox.processes is 1; a whole number from 8 to 10,000",
    "sandbox.disk_mb = 0": "sandbox.disk_mb is 0; a whole number from 1 to 10,000,000",
    "sandbox.files = 1": "sandbox.files is 1; a whole number from 100 to 100,000,000",
    "files.rule = 1": "files.rule is 1; a list of tables with paths and a permission is needed",
    'files.audience = "person:anna"': 'files.audience is "person:anna"; who may see it:',
    "files.largest_kb = 0": "files.largest_kb is 0; a whole number from 1 to 100,000 is needed",
    "log = 3": "log is a number; a table is needed, such as [log].",
}


@pytest.mark.promise("X5")
@pytest.mark.parametrize("line", BAD_VALUES)
def test_bad_value(file: Path, line: str) -> None:
    told = problem(file, f"# a comment\n{line}\n")
    assert told.startswith(f"asterism.toml line 2: {BAD_VALUES[line]}")
    assert told.endswith(".")
    assert "hunter2" not in told
    assert "\n" not in told


def schema(model: Any = Settings, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if str(kind).startswith("dict["):
            yield from schema(kind.__args__[1], f"{prefix}{name}.x.") if prefix == "" else ()
        elif hasattr(kind, "model_fields"):
            yield from schema(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_a_bad_value_is_tried_for_every_setting() -> None:
    tried = {told.split(" ")[0] for told in BAD_VALUES.values()}
    assert set(schema()) <= tried


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("limits.stepz = 1", "limits.stepz is not a setting. Did you mean limits.steps?"),
        ("models.x.api_key = 1", "models.x.api_key is not a setting. Did you mean models.x.key?"),
        ("storage.url = 1", "storage is not a setting. Did you mean store?"),
        ("limits.model = 1", "limits.model is not a setting. Did you mean model?"),
        ("heartbeat = 1", "heartbeat is not a setting. Did you mean runtime.heartbeat?"),
        ("log.zzz = 1", "log.zzz is not a setting. Known here: log.level, log.format."),
        ('log."a\\u0007" = 1', 'log."a\\x07" is not a setting. Known here: log.level, log.format.'),
    ],
)
def test_unknown_setting(file: Path, content: str, told: str) -> None:
    assert problem(file, content) == f"asterism.toml line 1: {told}"


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"ASTERISM_LIMITS__STEPS": "many"}, 'limits.steps is "many"; a whole number'),
        ({"ASTERISM_LIMITS__STEPS": "[" * 5000}, 'limits.steps is "[['),
        ({"ASTERISM_LIMITS__STEPS": "1\ncalls = 2"}, 'limits.steps is "1\\ncalls = 2"; a whole'),
        ({"ASTERISM_LIMITS": "{ steps = 0 }"}, "limits.steps is 0; a whole number"),
        ({"ASTERISM_LIMITS": "24"}, "limits is a number; a table is needed"),
        ({"ASTERISM_MODEL": "gpt"}, 'model is "gpt"; a model as vendor:name'),
        ({"ASTERISM_MODEL": "a:\udcff"}, 'model is "a:\\udcff"; a model as vendor:name'),
        ({"ASTERISM_MODEL__NAME": "a:b"}, "model is a table; a model as vendor:name"),
        ({"ASTERISM_LIMITS__STEP": "1"}, "limits.step is not a setting. Did you mean ASTERISM_"),
        ({"ASTERISM_MODLE": "a:b"}, "modle is not a setting. Did you mean ASTERISM_MODEL?"),
        ({"ASTERISM_LIMIT__STEPS": "1"}, "limit is not a setting. Did you mean ASTERISM_LIMITS?"),
        ({"ASTERISM_": "1"}, '"" is not a setting. Known here: ASTERISM_MODEL, ASTERISM_CONST'),
        ({"ASTERISM_A" + "__A" * 10_000: "1"}, "a is not a setting."),
        (
            {"ASTERISM_MODELS__X__OPTIONS": "{" + "a." * 99 + "a = 1}"},
            "values are nested deeper than",
        ),
    ],
)
def test_bad_environment(tmp_path: Path, environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, None, environ)
    (name,) = environ
    assert caught.value.message.startswith(f"{name[:80]}")
    assert f": {told}" in caught.value.message


@pytest.mark.promise("X5")
def test_bad_overrides(tmp_path: Path) -> None:
    overrides = {"limits.steps": -1, "context": {"tokens": b"x"}, "zzz": 1}
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, None, {}, overrides)
    first, second, third = caught.value.message.splitlines()
    assert first.startswith("overrides: limits.steps is -1;")
    assert second.startswith("overrides: context.tokens is a Python bytes;")
    assert third.startswith("overrides: zzz is not a setting.")
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(ConfigError, match="overrides: values are nested deeper than 32 levels"):
        load(tmp_path, None, {}, {"channels.x": endless})


@pytest.mark.promise("X5")
def test_the_source_that_won_is_blamed(file: Path) -> None:
    told = problem(file, "limits.steps = 3", {"ASTERISM_LIMITS": '{ steps = "x" }'})
    assert told.startswith("ASTERISM_LIMITS: limits.steps is ")
    told = problem(file, 'limits.steps = "x"', {"ASTERISM_LIMITS": "{ calls = 3 }"})
    assert told.startswith("asterism.toml line 1: limits.steps is ")
    told = problem(
        file,
        "",
        {"ASTERISM_LIMITS": "{ calls = 3 }", "ASTERISM_LIMITS__STEPS": "x"},
    )
    assert told.startswith("ASTERISM_LIMITS__STEPS: limits.steps is ")


@pytest.mark.promise("X5")
def test_all_problems_at_once_by_line(file: Path) -> None:
    told = problem(
        file,
        '[log]\nlevel = "loud"\n[limits]\ncalls = 0\nzzz = 1\nsteps = 0\n',
        {"ASTERISM_MODEL": "gpt"},
    )
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        "asterism.toml line 2",
        "asterism.toml line 4",
        "asterism.toml line 5",
        "asterism.toml line 6",
        "ASTERISM_MODEL",
    ]


@pytest.mark.promise("X5")
def test_very_many_problems_are_counted(file: Path) -> None:
    told = problem(file, "".join(f"a{n} = 1\n" for n in range(5000)))
    assert len(told.splitlines()) == 21
    assert told.endswith("There are 4,980 more problems.")


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("model", "line 1, its end", 'a key needs "="'),
        ('\nmodel "x"', "line 2, column", 'a key needs "="'),
        ("model = ", "line 1, its end", "text stands in quotes"),
        ("model = gpt", "line 1, column", "text stands in quotes"),
        ('model = "gpt\n', "line 1, column", "close it with a quote"),
        ('model = """gpt\n', "line 2, its end", "not closed"),
        ('model = "C:\\data"', "line 1, column", "backslash"),
        ('model = "\\ud800"', "line 1, column", "not a character"),
        ('model = "\\uzzzz"', "line 1, column", "not a character"),
        ("[limits", "line 1, its end", "ends with a bracket"),
        ("[[limits]", "line 1, column", "ends with a bracket"),
        ("[limits] steps = 1", "line 1, column", "on its own line"),
        ("a = [1", "line 1, its end", "list is not closed"),
        ("a = {b = 1", "line 1, its end", "table is not closed"),
        ("a = 1\na = 2", "line 2, its end", "set before"),
        ("a = {b = 1, b = 2}", "line 1, column", "set before"),
        ("[a]\n[a]", "line 2, column", "set before"),
        ("a = 2024-02-31", "line 1, column", "no such date"),
        ("= 1", "line 1, column", "a line is a"),
        ("a. = 1", "line 1, column", "letters, digits"),
        ("# \x07", "line 1, column", "control character"),
    ],
)
def test_malformed_toml(file: Path, content: str, place: str, words: str) -> None:
    told = problem(file, content)
    assert told.startswith(f"asterism.toml {place}")
    _, said, what = told.partition(": this is not valid TOML: ")
    assert said
    assert words in what


@pytest.mark.promise("X5")
def test_numbers_and_nesting_beyond_measure(file: Path) -> None:
    assert "too many digits" in problem(file, f"a = {'9' * 5000}")
    assert "line 1: values are nested too deeply" in problem(file, f"a = {'[' * 5000}")
    assert "a key has 43 parts" in problem(file, f"channels.x.{'a.' * 40}b = 1")
    assert "nested deeper than 32" in problem(file, f"channels.x.{'a.' * 40}b = 1")
    tables = f"[{'a.' * 15}b]\n{'a.' * 15}b.c = {{{'a.' * 10}b = 1}}"
    assert "nested deeper than 32" in problem(file, tables.replace(".c", ""))


@pytest.mark.promise("X5")
def test_not_utf8(file: Path) -> None:
    told = problem(file, b'a = 1\nmodel = "caf\xe9"\n')
    assert told == "asterism.toml line 2: byte 0xe9 is not UTF-8. Save the file as UTF-8."
    assert "line 1: byte 0xff" in problem(file, 'model = "a:b"'.encode("utf-16"))


@pytest.mark.promise("X5")
def test_far_too_large(file: Path) -> None:
    assert "is larger than 1,000,000 bytes" in problem(file, b"#" * 10_000_000)


@pytest.mark.promise("X5")
def test_named_file_that_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    for file, environ in ((missing, {}), (None, {"ASTERISM_CONFIG": str(missing)})):
        with pytest.raises(ConfigError, match=r"missing\.toml does not exist\. Create it"):
            load(tmp_path, file, environ)


@pytest.mark.promise("X5")
def test_what_is_no_readable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; a TOML file is needed"):
        load(tmp_path, tmp_path, {})
    dangling, loop = tmp_path / "asterism.toml", tmp_path / "loop"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path, None, {})
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="cannot be read: "):
        load(tmp_path, loop, {})
    with pytest.raises(ConfigError, match="cannot be read: "):
        load(tmp_path, tmp_path / ("x" * 300), {})
    with pytest.raises(ConfigError, match="cannot be read: "):
        load(tmp_path, tmp_path / "a\0b", {})


@pytest.mark.promise("X5")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(file: Path) -> None:
    file.touch(mode=0)
    with pytest.raises(ConfigError, match="is not readable for this user"):
        load(file.parent, None, {})


@pytest.mark.promise("X5")
def test_secrets_stay_out_of_sight(file: Path) -> None:
    file.write_text(
        """
        store.url = "postgresql://u:hunter2@h/db"
        models.x.key = "hunter2"
        models.x.options.headers.authorization = "hunter2"
        channels.x = { type = "discord", token = "hunter2" }
        """
    )
    settings = load(file.parent, None, {})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
    assert settings.channels["x"].options == {"token": "hunter2"}


FRAGMENTS = [
    *"[]{}=,.\"#\n'\\_-+: \t\r\0é1",
    *["[[", "]]", '"""', "'''", " = ", "1.5", "inf", "true", "1979-05-27 07:32:00Z", '"a b"'],
    *["model", "limits", "steps", "models", "channels", "type", "tools", "modules", "store", "url"],
]


@pytest.mark.promise("X5")
@given(content=st.binary() | st.lists(st.sampled_from(FRAGMENTS)).map("".join).map(str.encode))
def test_any_bytes_load_or_are_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    with suppress(ConfigError):
        load(file.parent, file, {})


@pytest.mark.promise("X5")
@given(
    name=st.text() | st.lists(st.sampled_from([*FRAGMENTS, "__"])).map("".join).map(str.upper),
    text=st.text() | st.lists(st.sampled_from(FRAGMENTS)).map("".join),
)
def test_any_variable_loads_or_is_a_config_error(name: str, text: str) -> None:
    with suppress(ConfigError):
        load(Path("nowhere"), None, {f"ASTERISM_{name}": text})


# Lines


def paths(value: object, key: Key = ()) -> Iterator[Key]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str | int, object]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[object]", value)))
    for part, item in inner:
        yield (*key, part)
        yield from paths(item, (*key, part))


def test_lines_of_every_form() -> None:
    text = '''\
a.b = 1  # x = 1
"q.\\u0022" = """
[no]
c = 1"""""
list = [
  1, [2,
  # ]
  3], { x = 1, y.z = [
  4] },
]

[t.u]  # [no]
v = \'\'\'
\'\'\'\'\'
w = 1979-05-27 07:32:00.5-07:00
[[t.i]]
[[t.i]]
n = {}
[t.i.deep]
m = +1.5e-3
[ t . "s" ]
'''
    expected: dict[Key, int] = {
        ("a",): 1,
        ("a", "b"): 1,
        ('q."',): 2,
        ("list",): 5,
        ("list", 0): 6,
        ("list", 1): 6,
        ("list", 1, 0): 6,
        ("list", 1, 1): 8,
        ("list", 2): 8,
        ("list", 2, "x"): 8,
        ("list", 2, "y"): 8,
        ("list", 2, "y", "z"): 8,
        ("list", 2, "y", "z", 0): 9,
        ("t",): 12,
        ("t", "u"): 12,
        ("t", "u", "v"): 13,
        ("t", "u", "w"): 15,
        ("t", "i"): 16,
        ("t", "i", 0): 16,
        ("t", "i", 1): 17,
        ("t", "i", 1, "n"): 18,
        ("t", "i", 1, "deep"): 19,
        ("t", "i", 1, "deep", "m"): 20,
        ("t", "s"): 21,
    }
    assert set(paths(tomllib.loads(text))) == set(expected)
    assert key_lines(text) == expected


class Draft:
    """A random TOML text that notes where it wrote each key."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.text = ""
        self.lines: dict[Key, int] = {}
        self.document()

    names = st.text("ab_-.[]{}=,#\"' é", max_size=4)
    scalars = st.sampled_from(
        [
            *["1", "-1.5e3", "true", "1979-05-27 07:32:00Z", '"]\\"#"', "'\\'", '""', "''"],
            *['"""\n[x]\ny = "1" \\""""""', "'''\n\n'a' = [ '''", '""""""', "''''''"],
        ]
    )

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def note(self, key: Key) -> None:
        self.lines.setdefault(key, self.text.count("\n") + 1)

    def key(self, table: Key, parts: list[str]) -> Key:
        for n, part in enumerate(parts):
            self.text += " . " if n else ""
            table = (*table, part)
            self.note(table)
            is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", part) and self.chance()
            self.text += part if is_bare else json.dumps(part, ensure_ascii=False)
        return table

    def pairs(self, table: Key, depth: int, *, between: str = "", after: str = "") -> None:
        for n, first in enumerate(self.draw(st.lists(self.names, unique=True, max_size=3))):
            self.text += between if n else ""
            key = self.key(table, [first, *self.draw(st.lists(self.names, max_size=2))])
            self.text += " = "
            self.value(key, depth)
            self.text += after

    def value(self, key: Key, depth: int) -> None:
        form = self.draw(st.sampled_from(["scalar", "scalar", "list", "table"]))
        if form == "scalar" or depth == 0:
            self.text += self.draw(self.scalars)
        elif form == "table":
            self.text += "{"
            self.pairs(key, depth - 1, between=", ")
            self.text += "}"
        else:
            self.text += "["
            for item in range(self.draw(st.integers(0, 3))):
                self.text += "# ] \n" if self.chance() else ""
                self.note((*key, item))
                self.value((*key, item), depth - 1)
                self.text += "\n, " if self.chance() else ","
            self.text += "\n]" if self.chance() else "]"

    def document(self) -> None:
        self.pairs((), 2, after="  # a = [1\n")
        names = self.draw(st.lists(self.names, unique=True, max_size=3))
        for name in names:
            if (name,) in self.lines:
                continue
            for item in range(self.draw(st.integers(0, 2))):
                self.note((name,))
                self.note((name, item))
                self.text += "[["
                self.key((), [name])
                self.text += "]]\n"
                self.pairs((name, item), 1, after="\n\n")
            if (name,) not in self.lines:
                self.text += "[ "
                table = self.key((), [name, "x"])
                self.text += " ]#\n"
                self.pairs(table, 1, after="\n")


@given(data=st.data())
def test_lines_of_any_document(data: st.DataObject) -> None:
    draft = Draft(data)
    assert set(paths(tomllib.loads(draft.text))) == set(draft.lines)
    assert key_lines(draft.text) == draft.lines


# Reload


class Ears:
    """What a subscriber and `on_problem` hear."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[tuple[Settings, Settings]] = asyncio.Queue()
        self.problems: asyncio.Queue[str] = asyncio.Queue()

    def live(self, file: Path, **environ: str) -> LiveSettings:
        live = LiveSettings(file.parent, None, environ, on_problem=self.problems.put_nowait)
        live.subscribe(lambda old, new: self.changes.put_nowait((old, new)))
        return live

    async def steps(self) -> int:
        async with asyncio.timeout(120):
            _, new = await self.changes.get()
        return new.limits.steps

    async def problem(self) -> str:
        async with asyncio.timeout(120):
            return await self.problems.get()


@pytest.mark.promise("O3")
def test_reload_puts_live_settings_in_use(file: Path) -> None:
    ears = Ears()
    file.write_text("limits.steps = 1")
    live = ears.live(file)
    before = live.current
    assert live.reload() == Reload()
    assert ears.changes.empty()
    file.write_text('limits.steps = 2\nmodels.x = {}\nchannels.y = { type = "z", n.m = 1 }')
    assert live.reload() == Reload(
        changed=("limits.steps", "models.x", "channels.y.type", "channels.y.n.m")
    )
    assert live.current.limits.steps == 2
    assert ears.changes.get_nowait() == (before, live.current)


def test_reload_names_what_needs_a_restart(file: Path) -> None:
    ears = Ears()
    live = ears.live(file)
    file.write_text(
        'constellation = "den"\nlimits.steps = 2\nruntime.turns = 3\n'
        'store.url = "postgresql://h/db"\ntools.modules = ["a"]'
    )
    expected = ("constellation", "store.url", "runtime.turns", "tools.modules")
    assert live.reload() == Reload(("limits.steps",), expected)
    assert live.current.constellation == "home"
    assert live.current.store.url is None
    assert live.current.runtime.turns == 256
    assert live.current.tools.modules == ()
    assert live.current.limits.steps == 2
    assert ears.problems.get_nowait() == (
        "constellation, store.url, runtime.turns, tools.modules: "
        "changed in asterism.toml, in use after a restart."
    )


@pytest.mark.promise("X5")
@pytest.mark.promise("O3")
def test_bad_reload_keeps_the_last_good_and_a_good_one_heals(file: Path) -> None:
    ears = Ears()
    file.write_text("limits.steps = 1")
    live = ears.live(file)
    good = live.current
    for bad in ("limits.steps = 0", "limits.steps =", "limits.stepz = 2"):
        file.write_text(bad)
        result = live.reload()
        told = ears.problems.get_nowait()
        assert result == Reload(error=told)
        assert told.startswith("asterism.toml line 1")
        assert told.endswith(" The previous configuration stays in use.")
        assert live.current is good
    file.unlink()
    assert "does not exist" in (live.reload().error or "")
    assert live.current is good
    file.write_text("limits.steps = 3")
    assert live.reload() == Reload(("limits.steps",))
    assert live.current.limits.steps == 3


def test_reload_without_a_file_is_quiet_until_there_is_one(file: Path) -> None:
    live = Ears().live(file)
    assert live.reload() == Reload()
    file.write_text("limits.steps = 3")
    assert live.reload().changed == ("limits.steps",)
    file.unlink()
    assert live.reload().error
    assert live.current.limits.steps == 3


def test_reload_follows_secrets_without_showing_them(file: Path) -> None:
    file.write_text('models.x.key = "hunter2"')
    live = Ears().live(file)
    file.write_text('models.x.key = "hunter3"')
    assert live.reload() == Reload(("models.x.key",))


def test_environment_still_wins_after_reload(file: Path) -> None:
    live = Ears().live(file, ASTERISM_LIMITS__STEPS="9")
    file.write_text("limits.steps = 3")
    assert live.reload() == Reload()
    assert live.current.limits.steps == 9


@pytest.mark.promise("X5")
def test_a_bad_first_load_is_an_error(file: Path) -> None:
    file.write_text("limits.steps = 0")
    with pytest.raises(ConfigError, match=r"limits\.steps is 0"):
        Ears().live(file)


@asynccontextmanager
async def watching(live: LiveSettings) -> AsyncGenerator[asyncio.Task[None]]:
    task = asyncio.create_task(live.watch())
    await asyncio.sleep(0)  # runs up to the wait for the first change
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(120):
                await task


def write(file: Path, steps: int) -> None:
    file.write_text(f"limits.steps = {steps}")


def replace(file: Path, steps: int) -> None:
    beside = file.with_name(".asterism.toml.swp")
    write(beside, steps)
    beside.replace(file)


def move_away_and_write(file: Path, steps: int) -> None:
    backup = file.rename(file.with_name("asterism.toml~"))
    write(file, steps)
    backup.unlink()


@pytest.mark.promise("O3")
async def test_watch_sees_every_way_of_saving(file: Path) -> None:
    ears = Ears()
    write(file, 1)
    async with watching(ears.live(file)):
        for steps, save in enumerate((write, replace, move_away_and_write, replace, write), 2):
            save(file, steps)
            assert await ears.steps() == steps
    assert ears.problems.empty()


@pytest.mark.promise("X5")
async def test_watch_survives_bad_files_and_deletion(file: Path) -> None:
    ears = Ears()
    write(file, 1)
    live = ears.live(file)
    async with watching(live):
        write(file, 0)
        assert "asterism.toml line 1" in await ears.problem()
        file.unlink()  # noqa: ASYNC240 - the loop has nothing else to do
        assert "does not exist" in await ears.problem()
        assert live.current.limits.steps == 1
        write(file, 2)
        assert await ears.steps() == 2


async def test_watch_sees_a_new_file_beside_busy_others(file: Path) -> None:
    ears = Ears()
    async with watching(ears.live(file)):
        write(file.with_name("asterism.db-wal"), 1)
        write(file, 2)
        assert await ears.steps() == 2


async def test_watch_catches_up_with_what_was_saved_before_it_began(file: Path) -> None:
    ears = Ears()
    live = ears.live(file)
    write(file, 2)
    async with watching(live):
        assert await ears.steps() == 2


async def test_watch_follows_links(tmp_path: Path) -> None:
    for steps in (1, 2):
        folder = tmp_path / f"..{steps}"
        folder.mkdir()
        write(folder / "asterism.toml", steps)
    (tmp_path / "..data").symlink_to("..1")
    file = tmp_path / "asterism.toml"
    file.symlink_to("..data/asterism.toml")
    ears = Ears()
    async with watching(ears.live(file)):
        (tmp_path / "..new").symlink_to("..2")
        (tmp_path / "..new").replace(tmp_path / "..data")
        assert await ears.steps() == 2


async def test_watch_says_when_it_cannot(tmp_path: Path) -> None:
    ears = Ears()
    async with watching(ears.live(tmp_path / "gone" / "asterism.toml")) as task:
        assert "cannot be watched" in await ears.problem()
        await task
