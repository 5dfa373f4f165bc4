"""Settings of the service: each has an option of ``mvplda serve`` and a name in the environment.

The option of ``lock_after`` is ``--lock-after``, its name in the environment ``MVPLDA_LOCK_AFTER``. Options come before
the environment, the environment before defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LOCAL_HOSTS = ("127.0.0.1", "::1", "[::1]", "localhost")


class Settings(BaseSettings):
    """Everything that an operator may choose."""

    model_config = SettingsConfigDict(
        env_prefix="MVPLDA_", frozen=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    # -- what is served, and where
    host: str = "127.0.0.1"
    """Address to listen at; others than the machine's own need API keys."""
    port: int = Field(default=8765, ge=1, le=65535)
    """Listen at this port of the machine."""
    role: Literal["all", "verify", "identify"] = "all"
    """Which decisions this instance makes: those about a claimed person, whose voice it is, or both."""
    search: Literal["memory", "pgvector"] = "memory"
    """Where whose voice it is is searched: in the memory of this instance, or in its PostgreSQL by the extension
    pgvector, which then holds vectors of voices that are rotated and not encrypted."""
    data: Path = Path("mvplda-data")
    """Folder of the database and the master key."""
    database: str | None = None
    """Database of profiles, such as postgresql://user@host/name. SQLite in the data folder without it."""
    key_database: str | None = None
    """Database of the data keys, apart from what is backed up. keys.sqlite in the data folder without it, or the
    database itself where that is PostgreSQL."""
    model: Path | None = None
    """Model file that decides. The default model without it."""
    extractors: Annotated[tuple[str, ...], NoDecode] = ()
    """Extractors that make the model's vectors of sound, side by side."""
    demo: bool = False
    """Serve the DEMONSTRATION network, which must never decide about people."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that share the port."""

    # -- decisions
    far: float | None = Field(default=None, gt=0, lt=1)
    """Share of impostors that may be accepted, where a call gives none. What the model gives, else 0.01, without
    it."""
    spoof_prior: float = Field(default=0.25, gt=0, lt=1)
    """Share of machines among what is to be rejected, where a call has a countermeasure's LLR."""
    lock_after: int = Field(default=5, ge=1)
    """Rejections in a row that lock a profile."""
    lock_s: float = Field(default=60.0, ge=0)
    """Seconds of the first lock; each further rejection doubles them."""
    challenge_s: float = Field(default=60.0, gt=0)
    """Seconds within which a challenge is answered."""

    # -- profiles
    enrolments: int = Field(default=3, ge=1, le=20)
    """Recordings of a phrase before it is enrolled."""
    most_enrolments: int = Field(default=50, ge=1)
    """Recordings that one profile may hold."""
    least_llr: float = -1.0
    """An enrolment whose voice or words have a lower LLR against those before is refused."""
    expire_days: float = Field(default=365.0, gt=0)
    """Days after which an unused profile expires."""
    keep_vectors: bool = True
    """Keep the vector of each recording, encrypted, to enrol it again when the model changes."""
    vectors: bool = True
    """Take vectors as well as sound."""
    marks_days: float = Field(default=90.0, gt=0)
    """Days for which a recording is recognised when it is sent again."""
    audit_days: float = Field(default=730.0, gt=0)
    """Days for which the audit is kept."""

    # -- sound
    longest_s: float = Field(default=15.0, gt=0)
    """Longest recording that is taken, in seconds."""
    speech_s: float = Field(default=0.3, ge=0)
    """Least speech in a recording, in seconds."""
    snr_db: float = 10.0
    """Least signal to noise ratio, in dB."""
    clipped: float = Field(default=0.005, ge=0, le=1)
    """Largest share of clipped samples."""

    # -- access and load
    key_rate: float = Field(default=1200.0, ge=0)
    """Calls per minute of one API key; 0 is no limit."""
    profile_rate: float = Field(default=60.0, ge=0)
    """Attempts per minute on one profile; 0 is no limit."""
    most_bytes: int = Field(default=4 * 2**20, gt=0)
    """Largest body of a request, in bytes."""
    at_once: int = Field(default=4, ge=1)
    """Recordings in work at the same time."""
    waiting: int = Field(default=64, ge=0)
    """Recordings that wait; more are answered 503."""
    threads: int = Field(default=8, ge=1)
    """Calls that use the database at the same time."""
    connections: int = Field(default=2000, ge=1)
    """Open connections; beyond, those that sent no whole request are closed, the oldest first."""
    header_s: float = Field(default=10.0, gt=0)
    """Seconds within which the head of a request arrives."""
    body_s: float = Field(default=30.0, gt=0)
    """Seconds within which the body of a request arrives."""
    lock_timeout_s: float = Field(default=3.0, gt=0)
    """Seconds to wait for a row or table that another transaction holds."""
    statement_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that one statement may take (PostgreSQL)."""
    connect_timeout_s: float = Field(default=5.0, ge=1)
    """Seconds to wait for a connection to the database."""

    @field_validator("extractors", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """In the environment, names are divided by commas or blanks."""
        if isinstance(value, str):
            return value.replace(",", " ").split()
        return value

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in LOCAL_HOSTS

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{self.data / 'mvplda.sqlite'}"

    @property
    def key_url(self) -> str | None:
        if self.database is not None:
            return self.key_database
        return self.key_database or f"sqlite:///{self.data / 'keys.sqlite'}"
