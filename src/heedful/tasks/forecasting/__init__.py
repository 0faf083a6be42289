"""Forecasting: time series -> a model that predicts the next steps of every variable, scored by squared and absolute error."""
