DROP TABLE erased_deliveries;
