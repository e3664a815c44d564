-- Who accepts no jobs at present, and why. The operator's row stays until an operator removes it. A dispatcher renews its own
-- and removes it; one that was not renewed for a minute is a dead process's.
CREATE TABLE brakes (
    holder text PRIMARY KEY,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    renewed_at timestamptz NOT NULL DEFAULT now()
);
