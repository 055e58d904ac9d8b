"""The storage suite lives in the package: pytest rewrites its asserts only if it is told to before the import."""

import pytest

pytest.register_assert_rewrite("noonbell.testing.storage_cases")
