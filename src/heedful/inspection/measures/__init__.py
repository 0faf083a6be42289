"""What is measured of a model: functions of tensors, models and sentences; `analyses/` presents the results."""
