"""The rules that every integration is held to."""

from __future__ import annotations

import pytest
from adapter import Client, Extraction

from hymem_testing.conformance import FAILURES, Conformance


class TestClient(Conformance):
    adapter = Client

    def test_forked_children(self, stage, way):
        """As for the others, with what of the SDK survives a fork."""
        stage.adapter = Extraction
        super().test_forked_children(stage, way)

    @pytest.mark.parametrize("name", FAILURES)
    def test_skip_leaves_things_as_they_are(self, stage, caplog, name, way):
        """By the extractor alone, which takes no second to open: `add()` is in `test_chat`."""
        stage.adapter = Extraction
        super().test_skip_leaves_things_as_they_are(stage, caplog, name, way)

    @pytest.mark.parametrize("name", FAILURES)
    def test_fallback_has_the_main_model_write(self, stage, name, way):
        """As the one before."""
        stage.adapter = Extraction
        super().test_fallback_has_the_main_model_write(stage, name, way)

    def test_a_cancelled_write_is_counted_as_one(self, stage):
        """By the extractor: a client writes in a thread of its own, and from 2.0 on it goes on with a write
        whose caller has gone."""
        stage.adapter = Extraction
        super().test_a_cancelled_write_is_counted_as_one(stage)

    def test_the_integration_removed_while_configured(self, stage):
        """The SDK says nothing of sections it does not know: writes are the main model's again."""
        found, _ = stage.run("removed", before=stage.before(), after=stage.after())
        assert found == ["opened", "opened"]
        assert stage.writer.requests == []
