"""From recordings to decisions: audio, extractors, domain model, verification, setup."""
