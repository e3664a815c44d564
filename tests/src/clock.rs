//! A database whose clock is off: its schema has functions of the server's names, which are found first.

use crate::system::System;

/// The columns' defaults name the server's own function.
const USE_SETTABLE_CLOCK: &str = "DO $$ DECLARE one record; BEGIN \
       EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); \
       FOR one IN \
           SELECT c.oid::regclass AS name, a.attname AS column FROM pg_attrdef AS d \
           JOIN pg_class AS c ON c.oid = d.adrelid \
           JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum \
           WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition \
               AND pg_get_expr(d.adbin, d.adrelid) = 'now()' \
       LOOP EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT public.now()', one.name, one.column); END LOOP; END $$";

/// Makes the clock of a system's database a test's to set, for sessions that begin later. It is right at first.
pub async fn make_settable(system: &System) {
    system.sql("CREATE TABLE public.clock (ahead interval NOT NULL)").await;
    system.sql("INSERT INTO public.clock VALUES ('0')").await;
    for (name, volatility) in [("now", "STABLE"), ("clock_timestamp", "VOLATILE")] {
        let function = format!(
            "CREATE FUNCTION public.{name}() RETURNS timestamptz LANGUAGE sql {volatility} \
             AS $$ SELECT pg_catalog.{name}() + (SELECT ahead FROM public.clock) $$"
        );
        system.sql(&function).await;
    }
    system.sql(USE_SETTABLE_CLOCK).await;
}

/// Sets the database's clock, seconds ahead of this machine's. All sessions see it.
pub async fn set_ahead(system: &System, seconds: i64) {
    system.sql(&format!("UPDATE public.clock SET ahead = {seconds} * interval '1 second'")).await;
}
