-- The address from which a change or a posting was made, as text; NULL if it is not known or was made on the machine itself. Entries
-- that are older than the column have none.
ALTER TABLE audit ADD COLUMN address TEXT;
ALTER TABLE ledger ADD COLUMN address TEXT;
