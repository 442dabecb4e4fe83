"""Records of forecasts as issued."""
