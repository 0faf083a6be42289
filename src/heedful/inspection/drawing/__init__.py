"""Figures as lists of marks with positions, and their output as SVG, PNG, PDF or text."""
