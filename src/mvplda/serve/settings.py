"""Settings of the service: each has an option of ``mvplda serve`` and an environment variable.

The setting ``lock_after`` has the option ``--lock-after`` and the environment variable ``MVPLDA_LOCK_AFTER``. An option
overrides the environment variable, which overrides the default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .log_lines import LogFormat

LOCAL_HOSTS = ("127.0.0.1", "::1", "[::1]", "localhost")


class Settings(BaseSettings):
    """Settings of the service, from options of ``mvplda serve`` or environment variables.

    Each attribute is one setting; its docstring is the help text of the option.
    """

    model_config = SettingsConfigDict(
        env_prefix="MVPLDA_", frozen=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    # -- service and data
    host: str = "127.0.0.1"
    """Address at which the service listens. API keys are required unless it is an address of this machine only."""
    port: int = Field(default=8765, ge=1, le=65535)
    """Port at which the service listens."""
    role: Literal["all", "verify", "identify"] = "all"
    """Decisions that this instance makes: verification of a claimed person, identification, or both."""
    search: Literal["memory", "pgvector"] = "memory"
    """Where identification searches for a voice: in memory, or in PostgreSQL with the extension pgvector. The latter
    stores voice vectors that are rotated but not encrypted."""
    data: Path = Path("mvplda-data")
    """Folder of the database and the master key."""
    database: str | None = None
    """Database of profiles, such as postgresql://user@host/name. Default: SQLite in the data folder."""
    key_database: str | None = None
    """Database of the keys that encrypt profiles, to be left out of back-ups. Default: keys.sqlite in the data folder,
    or the database of profiles if that is PostgreSQL."""
    model: Path | None = None
    """Model file, or folder of mvplda setup. Default: the default model."""
    extractors: Annotated[tuple[str, ...], NoDecode] = ()
    """Extractors that compute the model's vectors; the vectors of several extractors are concatenated."""
    demo: bool = False
    """Serve the DEMONSTRATION network, which must never decide about people."""
    workers: int = Field(default=1, ge=1, le=64)
    """Number of processes that answer requests."""

    # -- decisions
    far: float | None = Field(default=None, gt=0, lt=1)
    """Share of impostors that may be accepted if a call does not set it. Default: that of the model, else 0.01."""
    spoof_prior: float = Field(default=0.25, gt=0, lt=1)
    """Assumed share of spoofed voices among the trials that should be rejected, for calls with a countermeasureLlr."""
    detector: bool = False
    """Detect replayed and resynthesised voices with the spoof detector of the package; it misses many, see
    docs/attacks.md."""
    require: Literal["none", "challenge", "countermeasure", "either"] = "none"
    """Protection against replayed and synthetic voices that each verification must have."""
    lock_after: int = Field(default=5, ge=1)
    """Number of rejections in a row that locks a profile."""
    lock_s: float = Field(default=60.0, ge=0)
    """Duration of the first lock in seconds; doubled by each further rejection."""
    challenge_s: float = Field(default=60.0, gt=0)
    """Seconds before a challenge expires."""

    early_decisions: bool = True
    """Decide a stream before its end if two results in a row agree, or if the speaker pauses for a second."""

    # -- profiles
    enrolments: int = Field(default=3, ge=1, le=20)
    """Recordings needed to enrol a phrase."""
    most_enrolments: int = Field(default=50, ge=1)
    """Maximum number of recordings per profile."""
    least_llr: float = -1.0
    """Minimum LLR, for voice and for phrase, of a new recording with earlier ones; below it, it is refused."""
    expire_days: float = Field(default=365.0, gt=0)
    """Days after which an unused profile expires."""
    keep_vectors: bool = True
    """Store the vector of each recording, encrypted, so that profiles can be used with a new model."""
    vectors: bool = True
    """Accept vectors of the extractor in place of sound."""
    marks_days: float = Field(default=90.0, gt=0)
    """Days during which a copy of a recording is detected."""
    audit_days: float = Field(default=730.0, gt=0)
    """Days for which audit entries are stored."""

    # -- sound
    longest_s: float = Field(default=15.0, gt=0)
    """Maximum length of a recording, in seconds."""
    speech_s: float = Field(default=0.3, ge=0)
    """Minimum speech in a recording, in seconds."""
    snr_db: float = 10.0
    """Minimum signal-to-noise ratio, in dB."""
    clipped: float = Field(default=0.005, ge=0, le=1)
    """Maximum share of clipped samples."""

    # -- access and load
    key_rate: float = Field(default=1200.0, ge=0)
    """Calls per minute of one API key; 0 is no limit."""
    profile_rate: float = Field(default=60.0, ge=0)
    """Attempts per minute on one profile; 0 is no limit."""
    most_bytes: int = Field(default=4 * 2**20, gt=0)
    """Largest body of a request, in bytes."""
    at_once: int = Field(default=4, ge=1)
    """Number of recordings that are processed at the same time."""
    waiting: int = Field(default=64, ge=0)
    """Number of recordings that may wait to be processed; further requests are answered with status 503."""
    threads: int = Field(default=8, ge=1)
    """Number of threads that use the database at the same time."""
    connections: int = Field(default=2000, ge=1)
    """Maximum number of open connections; beyond it, the oldest without a complete request are closed."""
    header_s: float = Field(default=10.0, gt=0)
    """Time limit for the headers of a request, in seconds."""
    body_s: float = Field(default=30.0, gt=0)
    """Time limit for the body of a request, in seconds."""
    body_memory: int = Field(default=128 * 2**20, gt=0)
    """Maximum memory for incomplete request bodies, in bytes; beyond it, the oldest are refused."""
    address_bodies: int = Field(default=128, ge=1)
    """Maximum number of incomplete request bodies of one address; beyond it, the oldest of the address are refused."""
    answers_s: float = Field(default=86400.0, gt=0)
    """Seconds for which the answer to a call with an Idempotency-Key is stored."""
    address_rate: float = Field(default=6000.0, ge=0)
    """Calls per minute of one address without an API key, such as for files of the page; 0 is no limit."""
    address_failures: float = Field(default=60.0, ge=0)
    """Calls per minute of one address with an invalid API key; 0 is no limit."""
    lock_timeout_s: float = Field(default=3.0, gt=0)
    """Seconds to wait for a row or table that another transaction has locked."""
    statement_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that one statement may take (PostgreSQL)."""
    answer_s: float = Field(default=8.0, gt=0)
    """Seconds after which a call is answered with status 503 if the database does not answer."""
    connect_timeout_s: float = Field(default=5.0, ge=1)
    """Seconds to wait for a connection to the database."""
    log_format: LogFormat = "auto"
    """Format of the log: lines of JSON, or of text; auto is text on a terminal and JSON elsewhere."""

    @field_validator("extractors", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Split a text of names separated by commas or blanks; return any other value unchanged."""
        if isinstance(value, str):
            return value.replace(",", " ").split()
        return value

    @property
    def local(self) -> bool:
        """Whether the service can be reached from this machine only."""
        return self.host in LOCAL_HOSTS

    @property
    def database_url(self) -> str:
        """Address of the database of profiles; by default an SQLite file in the data folder."""
        return self.database or f"sqlite:///{self.data / 'mvplda.sqlite'}"

    @property
    def key_url(self) -> str | None:
        """Address of the database of data keys; None: they are in the database of profiles."""
        if self.database is not None:
            return self.key_database
        return self.key_database or f"sqlite:///{self.data / 'keys.sqlite'}"
