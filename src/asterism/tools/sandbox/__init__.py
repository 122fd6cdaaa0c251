"""A place for programs that are not trusted: their own view of files, no network, firm bounds."""

from __future__ import annotations

from asterism.tools.sandbox.sandbox import (
    INSIDE,
    ProgramResult,
    RunningProgram,
    Sandbox,
    SandboxKind,
    SandboxLimits,
    SandboxView,
    find_sandbox,
    prepare_workspace,
)

__all__ = [
    "INSIDE",
    "ProgramResult",
    "RunningProgram",
    "Sandbox",
    "SandboxKind",
    "SandboxLimits",
    "SandboxView",
    "find_sandbox",
    "prepare_workspace",
]
