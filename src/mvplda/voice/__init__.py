"""Voice verification: from recordings of speech to decisions about speaker and phrase."""
