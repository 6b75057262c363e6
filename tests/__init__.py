"""The suite. A package, so that tests share code as ``from tests.kernels import naive`` whatever else is installed."""
