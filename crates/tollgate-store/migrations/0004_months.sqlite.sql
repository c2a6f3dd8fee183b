-- SQLite keeps usage records in one table; the step is there so that both databases count alike.
SELECT 1;
