"""What the Spark sessions of tests have in common."""

from __future__ import annotations

#: Hundreds of queries over a handful of rows: not one is worth compiling.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
