"""The cases of the storage suite, by verb. `noonbell.testing.storage_suite` puts them together."""
