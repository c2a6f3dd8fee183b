-- When an account passed a test somewhere: a fact of its own, which no process writes over with what it thinks of the account.
ALTER TABLE account_health ADD COLUMN passed_at BIGINT;
