-- The schema at the last revision, for a model of 384 dimensions. Written by the test that compares it:
-- MEMORY_TEST_UPDATE=1 pytest tests/integration/memory_recall/test_migrate_declared.py

CREATE FUNCTION public.memory_index_column_model() RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT 1$$;

CREATE FUNCTION public.memory_index_direction() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
        BEGIN
            IF "public".l2_norm(NEW.embedding) = 0 THEN
                NEW.embedding := NULL;
            END IF;
            RETURN NEW;
        END
        $$;

CREATE FUNCTION public.memory_index_forget() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$BEGIN IF to_regclass('"public"."memory_embedding_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT f.id FROM "public"."memory_embedding_failures" f JOIN gone g ON g.id = f.id FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_standby_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT f.id FROM "public"."memory_standby_failures" f JOIN gone g ON g.id = f.id FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE t.id IN (SELECT id FROM gone) FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (s.id IN (SELECT id FROM gone) OR s.superseded_by IN (SELECT id FROM gone)) FOR UPDATE SKIP LOCKED); END IF; RETURN NULL; END$$;

CREATE FUNCTION public.memory_index_forget_all() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$BEGIN IF to_regclass('"public"."memory_embedding_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT f.id FROM "public"."memory_embedding_failures" f  FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_standby_failures"') IS NOT NULL THEN DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT f.id FROM "public"."memory_standby_failures" f  FOR UPDATE OF f SKIP LOCKED); END IF; IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE true FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (true) FOR UPDATE SKIP LOCKED); END IF; RETURN NULL; END$$;

CREATE FUNCTION public.memory_index_guard() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
        BEGIN
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content)) THEN
                NEW.embedding := NULL;
            END IF;
            IF NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL)) THEN
                NEW.embedding := NULL;
            ELSIF NEW.embedding IS NULL THEN
                PERFORM pg_catalog.pg_notify('memory_index_pending', TG_TABLE_NAME);
            END IF;
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content) OR (NEW.id IS DISTINCT FROM OLD.id) OR NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL))) THEN
                DELETE FROM "public"."memory_embedding_failures" WHERE id IN (SELECT id FROM "public"."memory_embedding_failures" WHERE id = OLD.id FOR UPDATE SKIP LOCKED); DELETE FROM "public"."memory_standby_failures" WHERE id IN (SELECT id FROM "public"."memory_standby_failures" WHERE id = OLD.id FOR UPDATE SKIP LOCKED); IF to_regclass('"public"."memory_truncated_texts"') IS NOT NULL THEN DELETE FROM "public"."memory_truncated_texts" WHERE (id, model) IN (SELECT t.id, t.model FROM "public"."memory_truncated_texts" t WHERE t.id = OLD.id FOR UPDATE OF t SKIP LOCKED); END IF; IF to_regclass('"public"."memory_supersessions"') IS NOT NULL THEN UPDATE "public"."memory_supersessions" SET text_hash = '', successor_hash = '', undone_at = clock_timestamp() WHERE step IN (SELECT s.step FROM "public"."memory_supersessions" s WHERE s.undone_at IS NULL AND (s.id = OLD.id OR s.superseded_by = OLD.id) FOR UPDATE SKIP LOCKED); END IF;
            END IF;
            RETURN NEW;
        END
        $$;

CREATE FUNCTION public.memory_index_guard_standby() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
        BEGIN
            IF current_setting('memory_index.writer', true) IS DISTINCT FROM 'guarded' THEN
                IF NEW.embedding IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.embedding IS NULL OR NEW.embedding OPERATOR("public".<>) OLD.embedding) THEN
                    NEW.embedding := NULL;
                    PERFORM pg_catalog.pg_notify('memory_index_pending', TG_TABLE_NAME);
                END IF;
                IF NEW.embedding_standby IS NOT NULL AND (TG_OP = 'INSERT' OR OLD.embedding_standby IS NULL OR NEW.embedding_standby OPERATOR("public".<>) OLD.embedding_standby) THEN
                    NEW.embedding_standby := NULL;
                END IF;
            END IF;
            IF TG_OP = 'UPDATE' AND ((NEW.content IS DISTINCT FROM OLD.content)) THEN
                NEW.embedding_standby := NULL;
            END IF;
            IF NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL)) OR "public".l2_norm(NEW.embedding_standby) = 0 THEN
                NEW.embedding_standby := NULL;
            END IF;
            RETURN NEW;
        END
        $$;

CREATE FUNCTION public.memory_index_keep_columns() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
        BEGIN
            IF pg_catalog.pg_trigger_depth() > 1 OR NOT ((NOT (NEW.is_sensitive IS NOT FALSE)) AND (NEW.deleted_at IS NULL)) AND ((NOT (OLD.is_sensitive IS NOT FALSE)) AND (OLD.deleted_at IS NULL)) THEN
                RETURN NEW;
            END IF;
            OLD.embedding := NEW.embedding;
            IF EXISTS (SELECT FROM pg_catalog.pg_attribute
                        WHERE attrelid = TG_RELID AND attname = 'embedding_standby' AND NOT attisdropped) THEN
                OLD.embedding_standby := NEW.embedding_standby;
            END IF;
            RETURN OLD;
        END
        $$;

CREATE FUNCTION public.memory_index_text_hash(content text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT pg_catalog.md5('(64 digits of a random key)' OPERATOR(pg_catalog.||) pg_catalog.md5('(64 digits of a random key)' OPERATOR(pg_catalog.||) COALESCE(content, '')))$$;

CREATE TABLE public.memories (
    id integer NOT NULL,
    content text NOT NULL,
    category character varying(50) DEFAULT 'facts'::character varying,
    tags text DEFAULT ''::text,
    expanded_keywords text DEFAULT ''::text,
    importance real DEFAULT 0.5,
    is_sensitive boolean DEFAULT false NOT NULL,
    user_id character varying(100) DEFAULT 'default'::character varying NOT NULL,
    deleted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    search_vector tsvector GENERATED ALWAYS AS ((((setweight(to_tsvector('english'::regconfig, COALESCE(content, ''::text)), 'A'::"char") || setweight(to_tsvector('english'::regconfig, COALESCE(expanded_keywords, ''::text)), 'B'::"char")) || setweight(to_tsvector('english'::regconfig, COALESCE(tags, ''::text)), 'C'::"char")) || setweight(to_tsvector('english'::regconfig, (COALESCE(category, ''::character varying))::text), 'D'::"char"))) STORED,
    embedding public.halfvec(384),
    CONSTRAINT memory_index_no_private_embedding CHECK (((embedding IS NULL) OR ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL))))
);
ALTER TABLE ONLY public.memories ALTER COLUMN search_vector SET STATISTICS 300;

CREATE SEQUENCE public.memories_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.memories_id_seq OWNED BY public.memories.id;

CREATE TABLE public.memory_embedding_failures (
    id bigint NOT NULL,
    text_hash text NOT NULL,
    attempts integer NOT NULL,
    error_class text NOT NULL,
    next_attempt timestamp with time zone NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT memory_embedding_failures_attempts_check CHECK ((attempts > 0))
);

CREATE TABLE public.memory_index_alembic_version__memories (
    version_num character varying(32) NOT NULL
);

CREATE TABLE public.memory_index_models (
    id integer NOT NULL,
    name text NOT NULL,
    digest text,
    dimensions integer NOT NULL,
    pooling text,
    max_tokens integer,
    query_prefix text DEFAULT ''::text NOT NULL,
    document_prefix text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    embedder_url text,
    usual_cosine double precision,
    CONSTRAINT memory_index_models_dimensions_check CHECK ((dimensions > 0)),
    CONSTRAINT memory_index_models_usual_cosine_check CHECK (((usual_cosine >= ('-1'::integer)::double precision) AND (usual_cosine < (1)::double precision)))
);

ALTER TABLE public.memory_index_models ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_index_models_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.memory_index_state (
    singleton boolean DEFAULT true NOT NULL,
    table_name text NOT NULL,
    active_model integer NOT NULL,
    next_model integer,
    column_adopted boolean NOT NULL,
    discarding boolean NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    table_oid regclass,
    wanted_at timestamp with time zone,
    column_names jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT memory_index_state_singleton_check CHECK (singleton)
);

CREATE TABLE public.memory_index_swaps (
    id integer NOT NULL,
    stage text NOT NULL,
    from_model integer NOT NULL,
    to_model integer NOT NULL,
    gate jsonb,
    message text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    flipped_at timestamp with time zone,
    CONSTRAINT memory_index_swaps_stage_check CHECK ((stage = ANY (ARRAY['planned'::text, 'filling'::text, 'indexing'::text, 'gating'::text, 'ready'::text, 'refused'::text, 'flipped'::text, 'finished'::text, 'aborted'::text])))
);

ALTER TABLE public.memory_index_swaps ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_index_swaps_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.memory_standby_failures (
    id bigint CONSTRAINT memory_embedding_failures_id_not_null NOT NULL,
    text_hash text CONSTRAINT memory_embedding_failures_text_hash_not_null NOT NULL,
    attempts integer CONSTRAINT memory_embedding_failures_attempts_not_null NOT NULL,
    error_class text CONSTRAINT memory_embedding_failures_error_class_not_null NOT NULL,
    next_attempt timestamp with time zone CONSTRAINT memory_embedding_failures_next_attempt_not_null NOT NULL,
    updated_at timestamp with time zone DEFAULT now() CONSTRAINT memory_embedding_failures_updated_at_not_null NOT NULL,
    CONSTRAINT memory_embedding_failures_attempts_check CHECK ((attempts > 0))
);

CREATE TABLE public.memory_supersessions (
    step bigint NOT NULL,
    run bigint NOT NULL,
    action text NOT NULL,
    id bigint NOT NULL,
    superseded_by bigint NOT NULL,
    text_hash text NOT NULL,
    successor_hash text NOT NULL,
    link_id bigint,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    undone_at timestamp with time zone,
    CONSTRAINT memory_supersessions_action_check CHECK ((action = ANY (ARRAY['UPDATE'::text, 'SUPERSEDE'::text]))),
    CONSTRAINT memory_supersessions_check CHECK ((superseded_by <> id))
);

ALTER TABLE public.memory_supersessions ALTER COLUMN step ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_supersessions_step_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.memory_truncated_texts (
    id bigint NOT NULL,
    model integer NOT NULL
);

ALTER TABLE ONLY public.memories ALTER COLUMN id SET DEFAULT nextval('public.memories_id_seq'::regclass);

ALTER TABLE ONLY public.memories
    ADD CONSTRAINT memories_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.memory_embedding_failures
    ADD CONSTRAINT memory_embedding_failures_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.memory_index_alembic_version__memories
    ADD CONSTRAINT memory_index_alembic_version__memories_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY public.memory_index_models
    ADD CONSTRAINT memory_index_models_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_pkey PRIMARY KEY (singleton);

ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.memory_standby_failures
    ADD CONSTRAINT memory_standby_failures_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.memory_supersessions
    ADD CONSTRAINT memory_supersessions_pkey PRIMARY KEY (step);

ALTER TABLE ONLY public.memory_truncated_texts
    ADD CONSTRAINT memory_truncated_texts_pkey PRIMARY KEY (id, model);

CREATE INDEX idx_memories_embedding ON public.memories USING hnsw (embedding public.halfvec_cosine_ops) WITH (m='24', ef_construction='128');

CREATE INDEX idx_memories_embedding_pending ON public.memories USING btree (id) WHERE ((embedding IS NULL) AND ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL)));

CREATE INDEX idx_memories_embedding_withheld ON public.memories USING btree (id) WHERE (NOT ((NOT (is_sensitive IS NOT FALSE)) AND (deleted_at IS NULL)));

CREATE INDEX idx_memories_search ON public.memories USING gin (search_vector);

CREATE INDEX idx_memories_updated ON public.memories USING btree (updated_at);

CREATE INDEX idx_memories_user ON public.memories USING btree (user_id);

CREATE UNIQUE INDEX memory_index_swaps_one_open ON public.memory_index_swaps USING btree ((true)) WHERE (stage = ANY (ARRAY['planned'::text, 'filling'::text, 'indexing'::text, 'gating'::text, 'ready'::text, 'refused'::text]));

CREATE UNIQUE INDEX memory_supersessions_current ON public.memory_supersessions USING btree (id) WHERE (undone_at IS NULL);

CREATE INDEX memory_supersessions_successor ON public.memory_supersessions USING btree (superseded_by) WHERE (undone_at IS NULL);

CREATE TRIGGER zz_memory_index_columns_update BEFORE UPDATE ON public.memories FOR EACH ROW WHEN ((current_setting('memory_index.writer'::text, true) = 'guarded'::text)) EXECUTE FUNCTION public.memory_index_keep_columns();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_columns_update;

CREATE TRIGGER zz_memory_index_delete AFTER DELETE ON public.memories REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.memory_index_forget();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_delete;

CREATE TRIGGER zz_memory_index_direction BEFORE INSERT OR UPDATE OF embedding ON public.memories FOR EACH ROW WHEN ((new.embedding IS NOT NULL)) EXECUTE FUNCTION public.memory_index_direction();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_direction;

CREATE TRIGGER zz_memory_index_insert BEFORE INSERT ON public.memories FOR EACH ROW EXECUTE FUNCTION public.memory_index_guard();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_insert;

CREATE TRIGGER zz_memory_index_truncate AFTER TRUNCATE ON public.memories FOR EACH STATEMENT EXECUTE FUNCTION public.memory_index_forget_all();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_truncate;

CREATE TRIGGER zz_memory_index_update BEFORE UPDATE ON public.memories FOR EACH ROW WHEN (((new.embedding IS NULL) OR (NOT ((NOT (new.is_sensitive IS NOT FALSE)) AND (new.deleted_at IS NULL))) OR (new.content IS DISTINCT FROM old.content) OR (new.id IS DISTINCT FROM old.id))) EXECUTE FUNCTION public.memory_index_guard();

ALTER TABLE public.memories ENABLE ALWAYS TRIGGER zz_memory_index_update;

ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_active_model_fkey FOREIGN KEY (active_model) REFERENCES public.memory_index_models(id);

ALTER TABLE ONLY public.memory_index_state
    ADD CONSTRAINT memory_index_state_next_model_fkey FOREIGN KEY (next_model) REFERENCES public.memory_index_models(id);

ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_from_model_fkey FOREIGN KEY (from_model) REFERENCES public.memory_index_models(id);

ALTER TABLE ONLY public.memory_index_swaps
    ADD CONSTRAINT memory_index_swaps_to_model_fkey FOREIGN KEY (to_model) REFERENCES public.memory_index_models(id);
