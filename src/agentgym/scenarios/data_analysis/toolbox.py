"""The definitions of the analyst's tools: descriptions and parameters."""

from __future__ import annotations

from agentgym.core.tools import Tool
from agentgym.scenarios.data_analysis import tools
from agentgym.scenarios.schemas import one_of, parameters

_COLUMN = {
    "type": "string",
    "pattern": "^[A-Z][a-z]+(?: [A-Z][a-z]+)+$",
    "description": "name of a column",
}
_VALUE = {"type": ["string", "number"], "maxLength": 24}

TOOLS = [
    Tool(
        "load_data",
        "Open the data file that the user names. The data is in a csv, jsonl or "
        "parquet file; look at it first.",
        parameters(
            file={
                "type": "string",
                "pattern": "^[a-z]+_[0-9]{4}\\.(?:csv|jsonl|parquet)$",
                "description": "name of the file to analyse",
            }
        ),
        tools.load_data,
        True,
    ),
    Tool(
        "describe",
        "Count the missing, empty or blank values of a column. Count how many "
        "different, distinct values it has. Find its most common value.",
        parameters(
            column=_COLUMN,
            aspect=one_of(
                {
                    "missing": "How many are empty, blank or not filled in.",
                    "distinct": "How many different ones there are.",
                    "most_common": "Which one is found most often, most of the time.",
                },
                "what to tell",
            ),
        ),
        tools.describe,
        True,
    ),
    Tool(
        "filter_data",
        "Keep only the rows where a column equals a text. Exclude or leave out rows. "
        "Restrict to rows where a number is above or below a limit. What share or "
        "percentage of the rows meets the condition.",
        parameters(
            column=_COLUMN,
            condition=one_of(
                {
                    "equals": "Only rows with this text. Keep these and no others.",
                    "differs": "All rows except those with this text. Leave these "
                    "out, exclude, drop, ignore or skip them.",
                    "above": "More than the limit. Over, greater or higher than it.",
                    "below": "Less than the limit. Under, smaller or lower than it.",
                },
                "how to compare",
            ),
            value={
                **_VALUE,
                # Texts in the data are in lower case.
                "not": {"type": "string", "pattern": "[^a-z ]"},
                "description": "text or number to compare with",
            },
        ),
        tools.filter_data,
        True,
    ),
    Tool(
        "aggregate_data",
        "Which group has the highest or lowest total or average. Group the rows by a "
        "category and compare. Break monthly figures down: which month is highest or "
        "lowest.",
        parameters(
            group_by={
                "anyOf": [_COLUMN, {"const": tools.MONTH}],
                "description": "category column to group by, or month",
            },
            column=_COLUMN,
            function=one_of(
                {
                    "sum": "The total, summed up.",
                    "mean": "The average.",
                    "maximum": "The peak, the greatest one.",
                },
                "how to combine the numbers",
            ),
            order=one_of(
                {
                    "highest": "The largest, greatest, most.",
                    "lowest": "The smallest, least.",
                },
                "which group to name",
            ),
        ),
        tools.aggregate_data,
        True,
    ),
    Tool(
        "calculate_stats",
        "Calculate one statistic of a column: the average, median, total, minimum, "
        "maximum or standard deviation of its numbers.",
        parameters(
            column=_COLUMN,
            statistic=one_of(
                {
                    "mean": "The average.",
                    "median": "The middle one.",
                    "sum": "The total.",
                    "minimum": "The smallest, the lowest.",
                    "maximum": "The largest, the highest.",
                    "standard_deviation": "How far the numbers are spread.",
                },
                "which figure",
            ),
        ),
        tools.calculate_stats,
        True,
    ),
    Tool(
        "detect_outliers",
        "Count outliers, extreme or suspicious values by a rule: interquartile, "
        "boxplot or z-scores. Find the month in which something abnormal happened: an "
        "anomaly.",
        parameters(
            column=_COLUMN,
            method=one_of(
                {
                    "iqr": "The interquartile rule, the boxplot rule.",
                    "zscore": "By z-scores, the three-sigma rule.",
                    "month": "Which month is abnormal.",
                },
                "rule, or by month",
            ),
        ),
        tools.detect_outliers,
        True,
    ),
    Tool(
        "run_correlation",
        "Correlation between two columns: are they related? Without another column, "
        "find the one that is most closely related and predicts best.",
        parameters(
            column=_COLUMN,
            method=one_of(
                {
                    "pearson": "Linear correlation.",
                    "spearman": "Correlation of ranks.",
                },
                "how to correlate",
            ),
            other={**_COLUMN, "optional": True},
        ),
        tools.run_correlation,
        True,
    ),
    Tool(
        "plot_chart",
        "Draw a chart, plot, graph or picture of what was computed last. A line over "
        "months, bars for categories, dots for two columns, a histogram for one.",
        parameters(
            kind=one_of(
                {
                    "line": "A course over months.",
                    "bar": "Categories side by side.",
                    "scatter": "Dots, for two columns.",
                    "histogram": "How one column is distributed.",
                },
                "kind of chart",
            )
        ),
        tools.plot_chart,
        True,
    ),
    Tool(
        "answer",
        "Tell the user the value that was found. The last step; it cannot be undone.",
        parameters(value={**_VALUE, "description": "value that was found"}),
        tools.answer,
        True,
    ),
]
