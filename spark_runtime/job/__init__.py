"""Jobs as users write them: functions, queries and scripts."""
