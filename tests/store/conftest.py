"""The suite lives in the package, where pytest does not rewrite asserts unless it is told to."""

import pytest

pytest.register_assert_rewrite("noonbell.testing.storage_cases")
