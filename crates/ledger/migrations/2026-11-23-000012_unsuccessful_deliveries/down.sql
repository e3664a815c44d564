DROP TRIGGER unsuccessful_inserted ON deliveries;
DROP TRIGGER unsuccessful_updated ON deliveries;
DROP TRIGGER unsuccessful_deleted ON deliveries;
DROP FUNCTION keep_unsuccessful_deliveries;
DROP TABLE unsuccessful_deliveries;
