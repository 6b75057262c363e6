"""The control plane of the integration tests, for what runs from the image."""

from tests.integration.conftest import bare_control_plane

__all__ = ["bare_control_plane"]
